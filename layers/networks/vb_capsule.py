"""The network with variational Bayes routing, see layers/vb_routing.py."""

from typing import Any, Literal

from ..vb_routing import ClassVBCapsules, ConvVBCapsules, PrimaryVBCapsules
from .base import Tensor, Tensors, convolution_block, network
from .matrix_capsule import CONVOLUTION, pose_tensors


@network("`softmax_loss`", "0.001")
def vb_capsule(
    images: Tensor,
    num_classes: int,
    *,
    conv_channels: int = 64,
    primary_types: int = 8,
    first_types: int = 16,
    second_types: int = 16,
    num_routing: int = 3,
    padding: Literal["VALID", "SAME"] = "SAME",
) -> Tensors:
    """`matrix_capsule` with variational Bayes routing.

    Batch normalization follows the convolution and every layer of capsules,
    separately for each type. There are no biases. In the authors' code the
    coordinates are 0.1 everywhere, and further weights (betas) have no effect.

    Args:
      conv_channels: int, channels of the convolution.
      primary_types: int, types of primary capsules.
      first_types: int, types of the first routed capsules.
      second_types: int, types of the second routed capsules.
      num_routing: int, iterations of the routing.
      padding: str, padding of the convolution; authors: VALID for 32x32 images.
    """
    hidden = convolution_block(conv_channels, *CONVOLUTION, "conv1", padding)(
        images
    )
    primary = PrimaryVBCapsules(primary_types, name="primary_capsules")
    options: dict[str, Any] = {"num_routing": num_routing}
    routed = [
        ConvVBCapsules(first_types, 3, 2, name="conv_capsules1", **options),
        ConvVBCapsules(second_types, 3, 1, name="conv_capsules2", **options),
        ClassVBCapsules(num_classes, name="class_capsules", **options),
    ]
    return {"conv1": hidden, **pose_tensors(primary(hidden), routed)}
