"""Matrix capsules with EM routing: each has a 4x4 pose and an activation.

Source: section 4 of Hinton, Sabour, Frosst 2018 (see em_routing.py).
"""

import dataclasses
import functools
from typing import Any

import numpy as np
from keras import ops

from .base_layers import registered
from .em_routing import EMOptions, em_fit
from .initializers import TruncatedNormal
from .matrix_votes import POSE_ENTRIES
from .mixture_routing import (
    MixtureLayer,
    Parents,
    PrimaryPoseLayer,
    fit_mixture,
)
from .tensors import Pair, Shape, Tensor

# `beta_a` of `em_routing` is this times the weight: costs are in the hundreds,
# but Adam changes a weight only by about the learning rate at each step.
BETA_A_UNIT = 1000.0
KERNEL_STDDEV = 0.3


@registered
class PrimaryMatrixCapsules(PrimaryPoseLayer):
    """Primary capsules: a 1x1 convolution to poses and to activations.

    Poses are linear in the channels; activations are sigmoids.

    Weights, with C channels: `pose_weights` [C, I * 16] and
    `activation_weights` [C, I], initially truncated normal with stddev 0.5
    as in the authors' code; `pose_biases` and `activation_biases`, initially 0.

    Args:
      num_capsules: int, I, number of capsule types.

    Input shape: [B, H, W, C]. Output shapes: [B, H, W, I, 16], [B, H, W, I].
    """

    def build(self, input_shape: Shape) -> None:
        super().build(input_shape)
        for name, size in (
            ("pose", self.num_capsules * POSE_ENTRIES),
            ("activation", self.num_capsules),
        ):
            shape = input_shape[-1], size
            normal = TruncatedNormal(stddev=0.5)
            weights = self.add_weight(shape, normal, name=f"{name}_weights")
            biases = self.add_weight((size,), "zeros", name=f"{name}_biases")
            setattr(self, f"{name}_weights", weights)
            setattr(self, f"{name}_biases", biases)

    def call(self, inputs: Tensor) -> Pair:
        inputs = ops.cast(inputs, self.compute_dtype)
        poses = ops.matmul(inputs, self.pose_weights) + self.pose_biases
        logits = ops.matmul(inputs, self.activation_weights)
        logits = logits + self.activation_biases
        shape = (-1, *inputs.shape[1:3], self.num_capsules, POSE_ENTRIES)
        activations = ops.sigmoid(ops.cast(logits, "float32"))
        return ops.reshape(poses, shape), activations


class _EMRoutedLayer(MixtureLayer):
    """Base class of layers with EM routing."""

    def __init__(self, num_capsules, options, kernel_stddev, *window, **kwargs):
        super().__init__(num_capsules, *window, **kwargs)
        self.options = options
        self.kernel_stddev = kernel_stddev

    def build(self, input_shape: Shape) -> None:
        super().build(input_shape)
        shape = (self.num_capsules,)
        self.beta_u = self.add_weight(shape, "zeros", name="beta_u")
        self.beta_a = self.add_weight(shape, "zeros", name="beta_a")

    def _kernel_initializer(self, shape):
        return TruncatedNormal(stddev=self.kernel_stddev)

    def call(self, inputs: Pair) -> Pair:
        poses, logits = self._capsules(inputs)
        return ops.cast(poses, self.compute_dtype), ops.sigmoid(logits)

    def _constants(self):
        beta_a = ops.cast(self.beta_a, "float32") * BETA_A_UNIT
        return [ops.cast(self.beta_u, "float32"), beta_a]

    def _route_votes(self, votes, activations, beta_u, beta_a):
        options = self.options
        fit = functools.partial(em_fit, beta_u, beta_a, options)
        steps = options.num_routing, options.damping
        return fit_mixture(votes, activations, fit, self._parents, *steps)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            **dataclasses.asdict(self.options),
            "kernel_stddev": self.kernel_stddev,
        }


@registered
class ConvMatrixCapsules(_EMRoutedLayer):
    """Convolutional matrix capsules, routed by EM.

    A parent sees the children at k x k positions. A vote is the pose of a child
    times a 4x4 matrix of `weights`. All parent positions share the weights.

    Weights, with I child types: `weights` [k, k, I, O, 4, 4], initially
    truncated normal with stddev `kernel_stddev`; `beta_u` and `beta_a` [O],
    initially 0. Routing uses 1000 * `beta_a`, to suit Adam's small steps.

    Args:
      num_capsules, kernel_size, strides, padding: see `WindowLayer`.
      num_routing, final_lambda, min_variance, damping, normalise: see
        `EMOptions`.
      kernel_stddev: float; 0.3 in the authors' code.

    Input and output: see `WindowLayer`. Poses have 16 atoms.
    """

    def __init__(
        self,
        num_capsules: int,
        kernel_size: int,
        strides: int = 1,
        padding: str = "VALID",
        num_routing: int = EMOptions.num_routing,
        final_lambda: float = EMOptions.final_lambda,
        min_variance: float = EMOptions.min_variance,
        damping: float = EMOptions.damping,
        normalise: str = EMOptions.normalise,
        kernel_stddev: float = KERNEL_STDDEV,
        **kwargs: Any,
    ):
        options = EMOptions(
            num_routing, final_lambda, min_variance, damping, normalise
        )
        first = num_capsules, options, kernel_stddev
        super().__init__(*first, kernel_size, strides, padding, **kwargs)

    def _make_parents(self):
        if self.options.normalise == "types":
            return Parents()
        by_type = self.options.normalise == "positions"
        return Parents(self._window, by_type, divide=not by_type)


@registered
class ClassMatrixCapsules(_EMRoutedLayer):
    """Class capsules, routed by EM: every child votes for every class.

    Children of the same type use the same matrices at all positions. With
    `coordinates` (the source's "coordinate addition") the position of a child,
    scaled to (0, 1), is added to each of its 4x4 votes: the row to entry [0, 3]
    of the vote, the column to entry [1, 3].

    Weights: `weights` [I, O, 4, 4], and `beta_u` and `beta_a` [O], as in
    `ConvMatrixCapsules`.

    Args:
      num_capsules: int, O, number of classes.
      num_routing, final_lambda, min_variance, damping: see `EMOptions`.
      coordinates: bool, whether positions are added to votes.
      kernel_stddev: float, see `ConvMatrixCapsules`; 0.01 in the authors' code.

    Input: pair of poses [B, H, W, I, 16] and activations [B, H, W, I].
    Output: pair of poses [B, O, 16] and activations [B, O].
    """

    arguments = ("num_capsules", "coordinates")
    _shares_weights = True

    def __init__(
        self,
        num_capsules: int,
        num_routing: int = EMOptions.num_routing,
        final_lambda: float = EMOptions.final_lambda,
        min_variance: float = EMOptions.min_variance,
        damping: float = EMOptions.damping,
        coordinates: bool = True,
        kernel_stddev: float = KERNEL_STDDEV,
        **kwargs: Any,
    ):
        options = EMOptions(num_routing, final_lambda, min_variance, damping)
        super().__init__(num_capsules, options, kernel_stddev, **kwargs)
        self.coordinates = coordinates

    def _coordinates_along(self, size):
        return (np.arange(size) + 0.5) / size

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        del config["normalise"]
        return config
