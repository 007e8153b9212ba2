"""Matrix capsules: a 4x4 pose and an activation each, routed by EM.

The layers take and return pairs of poses [B, H, W, types, 16], the matrices
row by row, and activations [B, H, W, types] in [0, 1]. Activations are float32
under every policy.

Source: the paper of em_routing.py, section 4.
"""

import dataclasses
import functools
import math
from typing import ClassVar

import keras
import numpy as np
from keras import ops

from .base_layers import PoseLayer, pair_specs
from .blocks import block_size, by_blocks
from .em_routing import (
    POSE_ENTRIES,
    POSE_SIZE,
    EMOptions,
    OverPositions,
    OverTypes,
    em_fit,
    matrix_votes,
    route,
)
from .initializers import TruncatedNormal
from .windows import WindowLayer

# The weight `beta_a` is in thousands: costs are in the hundreds, but Adam
# changes a weight only by about the learning rate at each step.
BETA_A_UNIT = 1000.0
KERNEL_STDDEV = 0.3


@keras.saving.register_keras_serializable(package="capsules")
class PrimaryMatrixCapsules(PoseLayer):
    """Primary capsules: a 1x1 convolution to poses and to activations.

    Poses are linear in the channels; activations are sigmoids of linear
    functions of the channels.

    Weights, with C channels: `pose_weights` [C, I * 16] and
    `activation_weights` [C, I], initially truncated normal with stddev 0.5
    (the authors' code), `pose_biases` and `activation_biases`, initially 0.

    Args:
      num_capsules: int, I, number of capsule types.

    Input shape: [B, H, W, C]. Output shapes: [B, H, W, I, 16], [B, H, W, I].
    """

    arguments = ("num_capsules",)

    def __init__(self, num_capsules: int, **kwargs):
        super().__init__(**kwargs)
        self.num_capsules = num_capsules
        self.input_spec = keras.layers.InputSpec(ndim=4)

    def build(self, input_shape):
        self._fix_channels(input_shape)
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

    def _fix_channels(self, input_shape):
        axes = {-1: input_shape[-1]}
        self.input_spec = keras.layers.InputSpec(ndim=4, axes=axes)

    def call(self, inputs):
        inputs = ops.cast(inputs, self.compute_dtype)
        poses = ops.matmul(inputs, self.pose_weights) + self.pose_biases
        logits = (
            ops.matmul(inputs, self.activation_weights) + self.activation_biases
        )
        shape = (-1, *inputs.shape[1:3], self.num_capsules, POSE_ENTRIES)
        activations = ops.sigmoid(ops.cast(logits, "float32"))
        return ops.reshape(poses, shape), activations

    def compute_output_shape(self, input_shape):
        shape = (*input_shape[:-1], self.num_capsules)
        return (*shape, POSE_ENTRIES), shape

    def multiply_adds(self, input_shape):
        numbers = self.num_capsules * (POSE_ENTRIES + 1)
        return math.prod(input_shape[1:]) * numbers


class VotingLayer(WindowLayer):
    """Base class of layers with matrix votes, computed in blocks of images.

    `_kernel_initializer` of a subclass takes the shape of the weights.
    """

    num_atoms = POSE_ENTRIES
    _shares_weights = False  # whether all places in the window share weights

    def build(self, input_shape):
        """Takes the shape [B, H, W, I, 16] of the children's poses."""
        if len(input_shape) != 5 or input_shape[-1] != POSE_ENTRIES:
            raise ValueError(
                f"Poses must be [B, H, W, I, 16]. Received: {input_shape}"
            )
        self._window = self.window(input_shape)
        self._positions = self.grid(input_shape)
        window, types = self._window.shape, input_shape[3]
        places = math.prod(window)
        # (P, C) of `matrix_votes` and the axes of the weights before [O, 4, 4].
        self._field, axes = (1, places * types), (*window, types)
        if self._shares_weights:
            self._field, axes = (places, types), (types,)
        sizes = *self._positions, *self._field, self.num_capsules
        self._num_votes = math.prod(sizes)
        # About four tensors have the size of all votes.
        self._block_size = block_size(4 * self._num_votes * POSE_ENTRIES)
        shape = (*axes, self.num_capsules, POSE_SIZE, POSE_SIZE)
        self.kernel = self.add_weight(
            shape, self._kernel_initializer(shape), name="weights"
        )
        self.input_spec = keras.layers.InputSpec(shape=(None, *input_shape[1:]))

    def _by_blocks(self, function, poses, *examples, constants=()):
        """Calls a function on blocks of images.

        Its arguments are poses [b, n, 4, 4, P, C] of the children in the window
        of each parent position, the examples [b, ...], the weights [O, 4, 4, C]
        and the constants.
        """
        shape = (-1, math.prod(self._positions))  # [B, n]
        poses = ops.reshape(
            self._window.patches(ops.cast(poses, "float32")),
            (*shape, *self._field, POSE_ENTRIES),
        )
        poses = ops.reshape(
            ops.transpose(poses, (0, 1, 4, 2, 3)),
            (*shape, POSE_SIZE, POSE_SIZE, *self._field),
        )
        # Rounded like all weights under mixed precision. As tensors, since
        # blocks that are computed again would read variables again.
        kernel = ops.cast(ops.cast(self.kernel, self.compute_dtype), "float32")
        kernel = ops.reshape(kernel, (-1, *kernel.shape[-3:]))
        constants = [ops.transpose(kernel, (1, 2, 3, 0)), *constants]
        return by_blocks(
            function, [poses, *examples], constants, self._block_size
        )

    def _votes(self, poses, kernel):
        """Votes [O, b * n, 16, K] of the poses and weights of `_by_blocks`."""
        return matrix_votes(ops.reshape(poses, (-1, *poses.shape[2:])), kernel)

    def _by_image(self, tensor):
        """[O, b * n, ...] -> [b, n, ..., O]."""
        tensor = ops.moveaxis(tensor, 0, -1)
        positions = math.prod(self._positions)
        return ops.reshape(tensor, (-1, positions, *tensor.shape[1:]))

    def multiply_adds(self, input_shape):
        return self._num_votes * POSE_SIZE**3


class _EMRoutedLayer(PoseLayer, VotingLayer):
    """Base class of layers with EM routing.

    `_make_parents` of a subclass returns the parents over which assignments sum
    to 1.
    """

    # Names and units of the costs.
    _betas: ClassVar = {"beta_u": 1.0, "beta_a": BETA_A_UNIT}
    _offsets = None  # [16, K], added to the votes

    def __init__(self, num_capsules, options, kernel_stddev, *window, **kwargs):
        super().__init__(num_capsules, *window, **kwargs)
        self.options = options
        self.kernel_stddev = kernel_stddev

    def build(self, input_shape):
        specs = pair_specs(input_shape)
        super().build(input_shape[0])
        self._parents = self._make_parents()
        for name in self._betas:
            weight = self.add_weight((self.num_capsules,), "zeros", name=name)
            setattr(self, name, weight)
        self.input_spec = specs

    def _kernel_initializer(self, shape):
        return TruncatedNormal(stddev=self.kernel_stddev)

    def call(self, inputs):
        poses, logits = self._capsules(inputs)
        return ops.cast(poses, self.compute_dtype), ops.sigmoid(logits)

    def _capsules(self, inputs):
        """Poses and logits of activations, both float32."""
        poses, logits = self._route_blocks(self._capsules_of_block, inputs)
        shape = (-1, *self._positions, self.num_capsules)
        poses = ops.reshape(poses, (*shape, POSE_ENTRIES))
        return poses, ops.reshape(logits, shape)

    def assignments(self, inputs):
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
        constants = [
            ops.cast(getattr(self, name), "float32") * unit
            for name, unit in self._betas.items()
        ]
        return self._by_blocks(
            function, poses, activations, constants=constants
        )

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

    def _route(self, poses, activations, kernel, *betas):
        """Routes the votes at all positions of a block of images."""
        votes = self._votes(poses, kernel)
        if self._offsets is not None:
            votes = votes + ops.convert_to_tensor(self._offsets)
        activations = ops.reshape(activations, (-1, activations.shape[-1]))
        return self._route_votes(votes, activations, *betas)

    def _route_votes(self, votes, activations, beta_u, beta_a):
        fit = functools.partial(em_fit, beta_u, beta_a, self.options)
        return route(votes, activations, fit, self.options, self._parents)

    def get_config(self):
        return {
            **super().get_config(),
            **dataclasses.asdict(self.options),
            "kernel_stddev": self.kernel_stddev,
        }


@keras.saving.register_keras_serializable(package="capsules")
class ConvMatrixCapsules(_EMRoutedLayer):
    """Convolutional matrix capsules.

    Each parent has the children of k x k positions. The votes are their poses
    times `weights`, which all positions share.

    Weights, with I child types: `weights` [k, k, I, O, 4, 4], initially
    truncated normal with stddev `kernel_stddev`; `beta_u` and `beta_a` [O],
    the costs of `em_routing`, initially 0; its `beta_a` is 1000 times the
    weight.

    Args:
      num_capsules: int, O, number of parent types.
      kernel_size: int, k, height and width of a receptive field.
      strides: int, the stride in both directions.
      padding: "VALID" or "SAME", in upper or lower case.
      num_routing, final_lambda, min_variance, damping, normalise: see
        `EMOptions`.
      kernel_stddev: float, of the initial `weights`; 0.3 in the authors' code.

    Input: pair of poses [B, H, W, I, 16] and activations [B, H, W, I].
    Output: pair of poses [B, h, w, O, 16] and activations [B, h, w, O].
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
        **kwargs,
    ):
        options = EMOptions(
            num_routing, final_lambda, min_variance, damping, normalise
        )
        window = kernel_size, strides, padding
        super().__init__(
            num_capsules, options, kernel_stddev, *window, **kwargs
        )

    def _make_parents(self):
        if self.options.normalise == "types":
            return OverTypes()
        by_type = self.options.normalise == "positions"
        return OverPositions(self._window, by_type)


@keras.saving.register_keras_serializable(package="capsules")
class ClassMatrixCapsules(_EMRoutedLayer):
    """Class capsules, one for each class, which all children vote for.

    Children of a type share their transformation at all positions. With
    `coordinates` ("coordinate addition" of the paper) the position of the
    child, scaled to (0, 1), is added to its vote: the row to entry 3, the
    column to entry 7.

    Weights, with I child types: `weights` [I, O, 4, 4], initially truncated
    normal with stddev `kernel_stddev`; `beta_u` and `beta_a` [O], the costs
    of `em_routing`, initially 0; its `beta_a` is 1000 times the weight.

    Args:
      num_capsules: int, O, number of classes.
      num_routing, final_lambda, min_variance, damping: see `EMOptions`.
      coordinates: bool, whether positions are added to votes.
      kernel_stddev: float, of the initial `weights`; 0.01 in the authors'
        code.

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
        **kwargs,
    ):
        options = EMOptions(num_routing, final_lambda, min_variance, damping)
        super().__init__(num_capsules, options, kernel_stddev, **kwargs)
        self.coordinates = coordinates

    def build(self, input_shape):
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

    def _coordinates_along(self, size):
        return (np.arange(size) + 0.5) / size

    def get_config(self):
        config = super().get_config()
        del config["normalise"]
        return config
