"""Matrix capsules with routing that fits normal distributions to the votes.

EM and variational Bayes routing differ in how they fit a parent to the votes.
Inputs and outputs of the layers are pairs: poses [B, H, W, types, 16] and
float32 activations [B, H, W, types] in [0, 1]. matrix_votes.py names the axes.
"""

import dataclasses
import math
from typing import Any

import keras
import numpy as np
from keras import ops

from .base_layers import Pair, Shape, Tensor, largest
from .matrix_votes import (
    POSE_ENTRIES,
    VotingLayer,
    materialize,
    over_children,
    over_entries,
)
from .routing import softmax
from .windows import PoseLayer, Window, pair_specs

# Added to sums of assignments, which are 0 if all children are inactive.
EPSILON = 1e-7


def fit_mixture(
    votes, activations, fit, parents, num_routing, damping=0.0, prior=EPSILON
):
    """For each parent, fits a normal distribution to the votes.

    M-steps and E-steps alternate as in `em_routing`, which defines V, R and r.
    Squared distances to a mean m are expanded. Hence each step is one matrix
    product with the features V, V^2 and 1 of the votes:

      sum r (V - m)^2 = sum r V^2 - 2 m sum r V + m^2 sum r

    To avoid cancellation, the votes are first centered on their initial mean.

    Args:
      votes: float32 tensor [O, N, 16, K].
      activations: tensor [N, K]; 0 for padding.
      fit: function of the total weights sum r [O, N, 1], the means [O, N, 16],
        the scatters sum r (V - mean)^2 [O, N, 16] and the iteration (from 0).
        It returns factors f [O, N, 16], terms t [O, N] and logits of the
        activations [O, N]. In the E-step, t - sum_h f (V - mean)^2, where sum_h
        is over the 16 entries, gives R by a softmax over the parents.
      parents: `Parents`.
      num_routing: int, number of M-steps.
      damping: float in [0, 1), weight of the previous mean in each mean.
      prior: float, weight of an additional zero vote in each mean.

    Returns:
      Tuple of float32 poses [O, N, 16], logits of the activations [O, N], and
      a list of the assignments [O, N, K] of each iteration.
    """
    types, _, _, children = votes.shape
    activations = materialize(ops.cast(activations, "float32"))
    uniform = ops.full_like(activations, 1 / types)[None]
    shape = types, ops.shape(votes)[1], children
    assignments = ops.broadcast_to(parents.start(uniform), shape)
    weights = assignments * activations
    center = ops.stop_gradient(
        over_children(votes, weights)
        / (ops.sum(weights, axis=-1, keepdims=True) + EPSILON)
    )
    votes = votes - center[..., None]
    ones = ops.ones_like(votes[:, :, :1])
    features = [votes, ops.square(votes), ones]  # [O, N, 16 + 16 + 1, K]
    features = ops.concatenate(features, axis=2)

    mean = 0.0
    all_assignments = []
    for iteration in range(num_routing):
        all_assignments.append(assignments)
        # M-step: sum r V and sum r V^2 [O, N, 16], and total = sum r [O, N, 1].
        moments = over_children(features, assignments * activations)
        first_moment, second_moment, total = ops.split(
            moments, (POSE_ENTRIES, 2 * POSE_ENTRIES), axis=-1
        )
        undamped = (first_moment + center * total) / (total + prior)
        mean = (1 - damping) * undamped + damping * mean
        shift = mean - center
        scatter = second_moment - 2 * shift * first_moment
        scatter = scatter + ops.square(shift) * total
        scatter = ops.maximum(scatter, 0.0)
        precision, terms, logits = fit(total, mean, scatter, iteration)
        if iteration == num_routing - 1:
            break
        # E-step.
        terms = terms - ops.sum(precision * ops.square(shift), axis=-1)
        factors = [2 * precision * shift, -precision, terms[..., None]]
        factors = ops.concatenate(factors, axis=-1)  # [O, N, 33]
        assignments = parents.normalize(over_entries(features, factors))
    return mean, logits, all_assignments


@dataclasses.dataclass
class Parents:
    """Defines over which parents the assignments R of a child sum to 1.

    They are the O types at a position or, with `window`, the O * P parents at
    the P positions whose window contains the child; with `by_type`, the P
    parents of each type. R starts at 1 / O or, with `divide`, at 1 / (O * P).
    """

    window: Window | None = None
    by_type: bool = False
    divide: bool = False

    def start(self, uniform):
        """Initial assignments [1, N, K]; `uniform` [1, N, K] is all 1 / O."""
        if not self.divide:
            return uniform
        # The same numbers of parents for each image of the batch.
        height, width = self.window.positions
        ones = ops.ones((1, height * width, uniform.shape[-1]), "float32")
        shares = 1 / self.window.over_windows(ones, ops.add)
        uniform_by_image = ops.reshape(uniform, (-1, *ones.shape[1:]))
        return ops.reshape(uniform_by_image * shares, ops.shape(uniform))

    def normalize(self, log_densities):
        """R [O, N, K]: the softmax of `log_densities` over the parents."""
        if self.window is None:
            return softmax(log_densities, axis=0)
        maxima = ops.stop_gradient(log_densities)
        if not self.by_type:
            maxima = largest(maxima, axis=0)
        maxima = self.window.over_windows(maxima, ops.maximum)
        total = exponentials = ops.exp(log_densities - maxima)
        if not self.by_type:
            total = ops.sum(exponentials, axis=0, keepdims=True)
        return exponentials / self.window.over_windows(total, ops.add)


class PrimaryPoseLayer(PoseLayer):
    """Base of primary capsules: a 1x1 convolution to poses and activations."""

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

    A subclass defines `call` and `_route_votes`. If `coordinates` is True, it
    also defines `_coordinates_along(size)`: those of `size` rows or columns.
    """

    coordinates = False  # whether those of a child are added to its votes

    def build(self, input_shape: Shape) -> None:
        specs = pair_specs(input_shape)
        super().build(input_shape[0])
        self.input_spec = specs
        if self.coordinates:
            sizes = input_shape[0][1:4]
            offsets = np.zeros((POSE_ENTRIES, *sizes), "float32")
            rows, columns = map(self._coordinates_along, sizes[:2])
            # The first two entries of the matrix's last column.
            offsets[3], offsets[7] = rows[:, None, None], columns[:, None]
            self._offsets = offsets.reshape(POSE_ENTRIES, -1)  # [16, K]

    def _parents(self):
        return Parents(self._window if self.kernel_size else None)

    def _capsules(self, inputs):
        """Poses and logits of activations, both float32."""

        def by_image(poses, logits, _):  # [b, n, O, 16] and [b, n, O]
            poses = ops.swapaxes(self._by_image(poses), -1, -2)
            return poses, self._by_image(logits)

        poses, logits = self._route(inputs, by_image)
        shape = (-1, *self._positions, self.num_capsules)
        poses = ops.reshape(poses, (*shape, POSE_ENTRIES))
        return poses, ops.reshape(logits, shape)

    def assignments(self, inputs: Pair) -> Tensor:
        """Assignments R of all iterations: float32 [num_routing, B, n, K, O].

        Axis n is the position of the parent, K the child in the receptive
        field of the parent, and O the type of the parent.
        """

        def by_image(poses, logits, assignments):  # [b, num_routing, n, K, O]
            return (ops.stack(list(map(self._by_image, assignments)), axis=1),)

        (assignments,) = self._route(inputs, by_image)
        return ops.moveaxis(assignments, 1, 0)

    couplings = assignments  # the name in other layers

    def _route(self, inputs, by_image):
        """Calls `by_image` with the results of routing of blocks of images."""
        poses, activations = inputs
        activations = self._window.patches(ops.cast(activations, "float32"))
        shape = (-1, math.prod(self._positions), math.prod(self._field))
        activations = ops.reshape(activations, shape)  # [B, n, K]

        def route_block(poses, activations, kernel, *constants):
            votes = self._votes(poses, kernel)
            if self.coordinates:
                votes = votes + ops.convert_to_tensor(self._offsets)
            activations = ops.reshape(activations, (-1, activations.shape[-1]))
            return by_image(*self._route_votes(votes, activations, *constants))

        examples, constants = (poses, activations), self._constants()
        return self._by_blocks(route_block, *examples, constants=constants)

    def _constants(self):
        return []  # the arguments of `_route_votes` after votes, activations
