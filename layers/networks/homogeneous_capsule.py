"""The network of Byerly, Kalganova and Dear, see layers/homogeneous.py."""

from typing import Literal

import keras
from keras import ops

from ..base_layers import batch_normalization
from ..capsule import Length
from ..homogeneous import INITIALIZER, HomogeneousCapsule
from .base import Tensor, Tensors, convolution_block, network

# Initial weights of the branches; those of "equal" are not trained.
MERGES = {"equal": "ones", "random": INITIALIZER, "ones": "ones"}


@network("cross-entropy", "0.001 * 0.98 ** (step // 500)", 1e-7, "softmax")
def homogeneous_capsule(
    images: Tensor,
    num_classes: int,
    *,
    convolutions: int = 9,
    first_channels: int = 32,
    more_channels: int = 16,
    branches: int = 3,
    order: Literal["xyz", "zxy"] = "xyz",
    merge: Literal["equal", "random", "ones"] = "ones",
    momentum: float = 0.99,
) -> Tensors:
    """3x3 convolutions with capsule branches, which are merged to logits.

    The last convolution and every third before it, at most `branches` in all,
    have a branch. The capsule lengths [B, classes, branches] are multiplied by
    a weight per branch, normalized over batch and classes, and summed over the
    branches. Due to the normalization, only the signs of these weights matter.

    Args:
      convolutions: int, number of convolutions.
      first_channels: int, channels of the first convolution.
      more_channels: int, channels that each convolution adds.
      branches: int, largest number of branches; every third convolution can
        have one.
      order: str, input capsules of a branch: one per position (xyz) or channel
        (zxy).
      merge: str, initial weights of the branches; equal: ones that are never
        trained.
      momentum: float, of all batch normalizations; the authors' is 0.9997.
    """
    norm = {"momentum": momentum, "epsilon": 1e-3, "scale": False}
    options = {"kernel_initializer": INITIALIZER, **norm}
    outputs, x = {}, 2.0 * images - 1.0
    for n in range(convolutions):
        block = convolution_block(
            first_channels + n * more_channels, 3, 1, f"conv{n + 1}", **options
        )
        x = outputs[block.name] = block(x)
    ends = range(convolutions, 0, -3)[:branches][::-1]
    weigh = keras.layers.EinsumDense(
        "bok,k->bok",
        (num_classes, len(ends)),
        kernel_initializer=MERGES[merge],
        trainable=merge != "equal",
        dtype="float32",
    )
    normalize = batch_normalization("norm", dtype="float32", **norm)
    merge_lengths = keras.Sequential([weigh, normalize], name="merge")
    lengths = []
    for end in ends:
        branch = HomogeneousCapsule(
            num_classes, order, momentum, name=f"branch{end}"
        )
        capsules = outputs[branch.name] = branch(outputs[f"conv{end}"])
        lengths.append(Length()(capsules))
    logits = ops.sum(merge_lengths(ops.stack(lengths, axis=-1)), axis=-1)
    return {**outputs, "logits": logits, "capsules": capsules}
