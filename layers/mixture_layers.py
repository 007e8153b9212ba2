"""Base classes of matrix capsules that have a pose and an activation.

Inputs and outputs are pairs: poses [B, H, W, types, 16], 4x4 matrices row by
row, and activations [B, H, W, types] in [0, 1], float32 under every policy.
"""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from .base_layers import PoseLayer, pair_specs
from .matrix_votes import POSE_ENTRIES, VotingLayer
from .mixture_routing import OverTypes
from .tensors import Names, Pair, Shape, Tensor


class PrimaryPoseLayer(PoseLayer):
    """Base of primary capsules: a 1x1 convolution to poses and activations.

    Args:
      num_capsules: int, I, number of capsule types.

    Input shape: [B, H, W, C]. Output shapes: [B, H, W, I, 16], [B, H, W, I].
    """

    arguments = ("num_capsules",)

    def __init__(self, num_capsules: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.num_capsules = num_capsules
        self.input_spec = keras.layers.InputSpec(ndim=4)

    def build(self, input_shape: Shape) -> None:
        axes = {-1: input_shape[-1]}
        self.input_spec = keras.layers.InputSpec(ndim=4, axes=axes)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        shape = (*input_shape[:-1], self.num_capsules)
        return (*shape, POSE_ENTRIES), shape

    def multiply_adds(self, input_shape: Shape) -> int:
        numbers = self.num_capsules * (POSE_ENTRIES + 1)
        return math.prod(input_shape[1:]) * numbers


class MixtureLayer(PoseLayer, VotingLayer):
    """Base of layers that route votes by `fit_mixture`.

    A subclass defines `call`, `_route_votes`, and `_make_parents`, the parents
    over which the assignments of a child sum to 1.
    """

    _offsets: np.ndarray | None = None  # [16, K], added to the votes

    def build(self, input_shape: Shape) -> None:
        specs = pair_specs(input_shape)
        super().build(input_shape[0])
        self._parents = self._make_parents()
        self.input_spec = specs

    def _capsules(self, inputs):
        """Poses and logits of activations, both float32."""
        poses, logits = self._route_blocks(self._capsules_of_block, inputs)
        shape = (-1, *self._positions, self.num_capsules)
        poses = ops.reshape(poses, (*shape, POSE_ENTRIES))
        return poses, ops.reshape(logits, shape)

    def assignments(self, inputs: Pair) -> Tensor:
        """Assignments R of all iterations: float32 [num_routing, B, n, K, O].

        Axes n, K and O are the position of a parent, the child in its
        receptive field, and the type of the parent.
        """
        (assignments,) = self._route_blocks(self._assignments_of_block, inputs)
        return ops.moveaxis(assignments, 1, 0)

    couplings = assignments  # the name in other layers

    def _route_blocks(self, function, inputs):
        """Calls a function of the arguments of `_route` on blocks of images."""
        poses, activations = inputs
        activations = ops.reshape(  # [B, n, K]
            self._window.patches(ops.cast(activations, "float32")),
            (-1, math.prod(self._positions), math.prod(self._field)),
        )
        return self._by_blocks(
            function, poses, activations, constants=self._constants()
        )

    def _constants(self):
        """The arguments of `_route_votes` after votes and activations."""
        return []

    def _capsules_of_block(self, *arguments):
        """Poses [b, n, O, 16] and logits of activations [b, n, O]."""
        poses, logits, _ = self._route(*arguments)
        poses = ops.swapaxes(self._by_image(poses), -1, -2)
        return poses, self._by_image(logits)

    def _assignments_of_block(self, *arguments):
        """Assignments [b, num_routing, n, K, O] in a tuple."""
        _, _, assignments = self._route(*arguments)
        by_image = [self._by_image(each) for each in assignments]
        return (ops.stack(by_image, axis=1),)

    def _route(self, poses, activations, kernel, *constants):
        """Routes the votes at all positions of a block of images."""
        votes = self._votes(poses, kernel)
        if self._offsets is not None:
            votes = votes + ops.convert_to_tensor(self._offsets)
        activations = ops.reshape(activations, (-1, activations.shape[-1]))
        return self._route_votes(votes, activations, *constants)


class ClassMixtureLayer(MixtureLayer):
    """Base of class capsules: every child votes for every class.

    A subclass defines `_coordinates_along`, the coordinates of an axis. With
    `coordinates` those of a child are added to its votes.
    """

    arguments: Names = ("num_capsules", "coordinates")
    _shares_weights = True

    def build(self, input_shape: Shape) -> None:
        super().build(input_shape)
        if self.coordinates:
            sizes = input_shape[0][1:4]
            offsets = np.zeros((POSE_ENTRIES, *sizes), "float32")
            rows, columns = map(self._coordinates_along, sizes[:2])
            # The first two entries of the matrix's last column.
            offsets[3], offsets[7] = rows[:, None, None], columns[:, None]
            self._offsets = offsets.reshape(POSE_ENTRIES, -1)

    def _make_parents(self):
        return OverTypes()
