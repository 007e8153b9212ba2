"""The network of "Matrix capsules with EM routing" ("the paper"), section 5."""

from collections.abc import Callable
from typing import Any, Literal

import keras
from keras import ops

from ..base_layers import TruncatedNormal, registered
from ..em_routing import (
    KERNEL_STDDEV,
    ClassMatrixCapsules,
    ConvMatrixCapsules,
    EMOptions,
    PrimaryMatrixCapsules,
)
from ..losses import float32
from .base import Tensor, Tensors, network

# Kernel size and strides of the convolution.
CONVOLUTION = 5, 2


@registered
def spread_loss(
    labels: Tensor, activations: Tensor, margin: Tensor | float = 0.9
) -> Tensor:
    """Spread loss of matrix capsules: equation 3 of the paper (em_routing.py).

    The sum over all pairs of a present class p and an absent class c of
    max(0, margin - (a_p - a_c))^2.

    Args:
      labels: tensor [B, O], k-hot.
      activations: tensor [B, O], in [0, 1].
      margin: float, or tensor [B] of margins; see `spread_margin`.
    """
    labels, activations = float32(labels, activations)
    ones = (1,) * len(activations.shape)
    margin = ops.reshape(ops.cast(margin, "float32"), (-1, *ones))
    # [B, ..., present, absent]
    difference = activations[..., None] - activations[..., None, :]
    pairs = labels[..., None] * (1.0 - labels[..., None, :])
    cost = pairs * ops.square(ops.relu(margin - difference))
    return ops.sum(cost, axis=(-2, -1))


# Functions from the fraction of `margin_steps` to the margin.
MARGIN_SCHEDULES: dict[str, Callable[[Tensor], Tensor]] = {
    # The paper: from 0.2 to 0.9.
    "linear": lambda progress: 0.2 + 0.7 * progress,
    # The authors' code, where 1 is step 700,000: from 0.21 to 0.99.
    "sigmoid": lambda progress: 0.2 + 0.79 * ops.sigmoid(14.0 * progress - 4.0),
}


def spread_margin(
    step: Tensor | None, margin_steps: int, schedule: str = "linear"
) -> Tensor:
    """The margin of the spread loss: float32 of the shape of `step`.

    Args:
      step: int tensor [B], number of finished training steps; None for
        the final margin, a scalar.
      margin_steps: int >= 1, number of steps until the final margin.
      schedule: string, a key of `MARGIN_SCHEDULES`.
    """
    steps = ops.cast(margin_steps if step is None else step, "float32")
    progress = ops.minimum(steps / margin_steps, 1.0)
    return MARGIN_SCHEDULES[schedule](progress)


def pose_tensors(capsules, layers):
    """Outputs of the pose `layers` after each other, the last named classes.

    `capsules` are poses and activations of the primary capsules.
    """
    outputs = {
        "primary_capsules/poses": capsules[0],
        "primary_capsules/activations": capsules[1],
    }
    for layer in layers:
        capsules = layer(capsules)
        outputs[f"{layer.name}/poses"] = capsules[0]
        outputs[f"{layer.name}/activations"] = capsules[1]
    return {**outputs, "logits": capsules[1], "capsules": capsules[0]}


@network("`spread_loss`, weight decay 2e-7", "0.003 * 0.96 ** (step / 20000)")
def matrix_capsule(
    images: Tensor,
    num_classes: int,
    *,
    conv_channels: int = 32,
    primary_types: int = 32,
    first_types: int = 32,
    second_types: int = 32,
    num_routing: int = EMOptions.num_routing,
    padding: Literal["VALID", "SAME"] = "VALID",
    conv_stddev: float = 0.05,
    kernel_stddev: float = KERNEL_STDDEV,
    conv_lambda: float = EMOptions.final_lambda,
    class_lambda: float = EMOptions.final_lambda,
    min_variance: float = EMOptions.min_variance,
    damping: float = EMOptions.damping,
    normalise: Literal["parents", "types", "positions"] = "parents",
    coordinates: bool = True,
) -> Tensors:
    """A convolution, primary capsules and three layers with EM routing.

    The convolution is 5x5 with stride 2 and relu. There are `primary_types`
    types of primary capsules. Two layers of 3x3 capsules without padding
    follow: `first_types` types with stride 2, then `second_types` types with
    stride 1. The last layer has one capsule per class. Poses have 16 entries.
    "logits" are activations of the class capsules, "capsules" their poses.

    On GPUs, call `layers.use_full_float32()` first: variances are small
    differences of sums of squares.

    Args:
      conv_channels: int, channels of the convolution (paper: A).
      primary_types: int, types of primary capsules (paper: B).
      first_types: int, types of first routed capsules (paper: C).
      second_types: int, types of second routed capsules (paper: D).
      num_routing: int, iterations of the routing.
      padding: str, padding of the convolution; capsules have VALID.
      conv_stddev: float, standard deviation of the convolution's initial
        kernel.
      kernel_stddev: float, standard deviation of initial vote weights.
      conv_lambda: float, limit of lambda in convolutional capsules.
      class_lambda: float, limit of inverse temperature lambda in class
        capsules.
      min_variance: float, added to variances in routing.
      damping: float, weight of the previous iteration's mean in each mean of
        the routing; the authors' code has 0.1.
      normalise: str, over which parents the assignments of a capsule sum to 1:
        all (parents), those at one position (types), or those of one type
        (positions).
      coordinates: bool, add a capsule's position to its votes for classes.
    """
    hidden = keras.layers.Conv2D(
        conv_channels,
        *CONVOLUTION,
        padding=padding.lower(),
        activation="relu",
        kernel_initializer=TruncatedNormal(stddev=conv_stddev),
        name="conv1",
    )(images)
    primary = PrimaryMatrixCapsules(primary_types, name="primary_capsules")
    options: dict[str, Any] = {
        "num_routing": num_routing,
        "min_variance": min_variance,
        "damping": damping,
        "kernel_stddev": kernel_stddev,
    }
    conv = {"final_lambda": conv_lambda, "normalise": normalise, **options}
    routed = [
        ConvMatrixCapsules(first_types, 3, 2, name="conv_capsules1", **conv),
        ConvMatrixCapsules(second_types, 3, 1, name="conv_capsules2", **conv),
        ClassMatrixCapsules(
            num_classes,
            final_lambda=class_lambda,
            coordinates=coordinates,
            name="class_capsules",
            **options,
        ),
    ]
    return {"conv1": hidden, **pose_tensors(primary(hidden), routed)}
