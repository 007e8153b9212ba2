"""Matrix capsules: a 4x4 pose and an activation each, routed by EM.

The layers take and return pairs of poses [B, H, W, types, 16], the matrices
row by row, and activations [B, H, W, types] in [0, 1]. Activations are float32
under every policy.

Source: the paper of em_routing.py, section 4.
"""

import dataclasses
import functools
import math

import keras
import numpy as np
from keras import ops

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
from .utils import (
    Layer,
    TruncatedNormal,
    Window,
    block_size,
    by_blocks,
    positions_of,
)

# The weight `beta_a` is in thousands: costs are in the hundreds, but Adam
# changes a weight only by about the learning rate at each step.
BETA_A_UNIT = 1000.0
KERNEL_STDDEV = 0.3
# The entries of a vote to which `ClassMatrixCapsules` adds the row and the
# column of the child: the first two of the matrix's last column.
ROW_ENTRY, COLUMN_ENTRY = 3, 7


class _MatrixCapsules(Layer):
    """Base class of layers that return poses and activations."""

    def compute_output_spec(self, inputs, training=None):
        # Keras cannot infer shapes through blocks of an unknown batch, and
        # would give both the same dtype.
        shapes = keras.tree.map_structure(lambda tensor: tensor.shape, inputs)
        dtypes = self.compute_dtype, "float32"
        return tuple(
            map(keras.KerasTensor, self.compute_output_shape(shapes), dtypes)
        )


@keras.saving.register_keras_serializable(package="capsules")
class PrimaryMatrixCapsules(_MatrixCapsules):
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

    def __init__(self, num_capsules: int, **kwargs):
        super().__init__(**kwargs)
        self.num_capsules = num_capsules
        self.input_spec = keras.layers.InputSpec(ndim=4)

    def build(self, input_shape):
        for name, size in (
            ("pose", self.num_capsules * POSE_ENTRIES),
            ("activation", self.num_capsules),
        ):
            weights = self.add_weight(
                name=f"{name}_weights",
                shape=(input_shape[-1], size),
                initializer=TruncatedNormal(stddev=0.5),
            )
            biases = self.add_weight(
                name=f"{name}_biases", shape=(size,), initializer="zeros"
            )
            setattr(self, f"{name}_weights", weights)
            setattr(self, f"{name}_biases", biases)

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

    def get_config(self):
        return {**super().get_config(), "num_capsules": self.num_capsules}


class _EMRoutedLayer(_MatrixCapsules):
    """Base class of layers with EM routing, computed in blocks of images.

    `_grid` of a subclass returns the grid of the n parents, `_positions`. For
    children [H, W, I] its `_set_sizes` sets `_field`, (P, C) of
    `matrix_votes`; `_kernel_shape`, the axes of the weights before [O, 4, 4];
    and `_parents`, over which assignments sum to 1.
    """

    _offsets = None  # [16, K], added to the votes

    def __init__(
        self, num_capsules: int, options: EMOptions, kernel_stddev, **kwargs
    ):
        # Without autocast activations stay float32 under mixed precision.
        super().__init__(autocast=False, **kwargs)
        self.num_capsules = num_capsules
        self.options = options
        self.kernel_stddev = kernel_stddev

    def build(self, input_shape):
        height, width, child_types = input_shape[0][1:4]
        self._positions = self._grid(height, width)
        self._set_sizes(height, width, child_types)
        types = self.num_capsules
        self._num_votes = math.prod((*self._positions, *self._field, types))
        # About four tensors have the size of all votes.
        self._block_size = block_size(4 * self._num_votes * POSE_ENTRIES)
        self.kernel = self.add_weight(
            name="weights",
            shape=(*self._kernel_shape, types, POSE_SIZE, POSE_SIZE),
            initializer=self._kernel_initializer(),
        )
        self._build_fit()
        self.input_spec = [
            keras.layers.InputSpec(shape=(None, *shape[1:]))
            for shape in input_shape
        ]

    def _kernel_initializer(self):
        return TruncatedNormal(stddev=self.kernel_stddev)

    def _build_fit(self):
        self.beta_u, self.beta_a = (
            self.add_weight(
                name=name, shape=(self.num_capsules,), initializer="zeros"
            )
            for name in ("beta_u", "beta_a")
        )

    def _fit_constants(self):
        """The last arguments of `_route_votes`, tensors."""
        return [
            ops.cast(self.beta_u, "float32"),
            ops.cast(self.beta_a, "float32") * BETA_A_UNIT,
        ]

    def call(self, inputs):
        poses, logits = self._capsules(inputs)
        return ops.cast(poses, self.compute_dtype), ops.sigmoid(logits)

    def _capsules(self, inputs):
        """Poses and logits of activations, both float32."""
        poses, logits = self._by_blocks(self._capsules_of_block, inputs)
        shape = (-1, *self._positions, self.num_capsules)
        poses = ops.reshape(poses, (*shape, POSE_ENTRIES))
        return poses, ops.reshape(logits, shape)

    def compute_output_shape(self, input_shape):
        batch, *sizes, _ = input_shape[1]
        shape = (batch, *self._grid(*sizes), self.num_capsules)
        return (*shape, POSE_ENTRIES), shape

    def multiply_adds(self, input_shape):
        return self._num_votes * POSE_SIZE**3

    def assignments(self, inputs):
        """Assignments R of all iterations: float32 [num_routing, B, n, K, O].

        Axes n, K and O are the position of a parent, the child in its
        receptive field, and the type of the parent.
        """
        (assignments,) = self._by_blocks(self._assignments_of_block, inputs)
        return ops.moveaxis(assignments, 1, 0)

    def _by_blocks(self, function, inputs):
        """Calls a function of the arguments of `_route` on blocks of images.

        Poses [B, n, 4, 4, P, C] and activations [B, n, P * C] are those of
        the children in the receptive field of each parent position.
        """
        poses, activations = inputs
        shape = (-1, math.prod(self._positions))  # [B, n]
        poses = ops.reshape(
            self._patches(ops.cast(poses, "float32")),
            (*shape, *self._field, POSE_ENTRIES),
        )
        poses = ops.reshape(
            ops.transpose(poses, (0, 1, 4, 2, 3)),
            (*shape, POSE_SIZE, POSE_SIZE, *self._field),
        )
        activations = ops.reshape(
            self._patches(ops.cast(activations, "float32")[..., None]),
            (*shape, math.prod(self._field)),
        )
        # Rounded like all weights under mixed precision. As tensors, since
        # blocks that are computed again would read variables again.
        kernel = ops.cast(ops.cast(self.kernel, self.compute_dtype), "float32")
        kernel = ops.reshape(kernel, (-1, *kernel.shape[-3:]))
        constants = [
            ops.transpose(kernel, (1, 2, 3, 0)),  # [O, 4, 4, C]
            *self._fit_constants(),
        ]
        return by_blocks(
            function, [poses, activations], constants, self._block_size
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

    def _route(self, poses, activations, kernel, *constants):
        """Routes the votes at all positions of a block of images."""
        poses = ops.reshape(poses, (-1, *poses.shape[2:]))
        votes = matrix_votes(poses, kernel)
        if self._offsets is not None:
            votes = votes + ops.convert_to_tensor(self._offsets)
        activations = ops.reshape(activations, (-1, activations.shape[-1]))
        return self._route_votes(votes, activations, *constants)

    def _route_votes(self, votes, activations, beta_u, beta_a):
        fit = functools.partial(em_fit, beta_u, beta_a, self.options)
        return route(votes, activations, fit, self.options, self._parents)

    def _by_image(self, tensor):
        """[O, b * n, ...] -> [b, n, ..., O]."""
        tensor = ops.moveaxis(tensor, 0, -1)
        positions = math.prod(self._positions)
        return ops.reshape(tensor, (-1, positions, *tensor.shape[1:]))

    def _patches(self, grid):
        """[B, H, W, ...] to the children of each parent position."""
        return grid

    def get_config(self):
        return {
            **super().get_config(),
            "num_capsules": self.num_capsules,
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
        super().__init__(num_capsules, options, kernel_stddev, **kwargs)
        self.kernel_size = kernel_size
        self.strides = strides
        self.padding = padding.upper()

    def _grid(self, *sizes):
        window = self.kernel_size, self.strides, self.padding
        return tuple(positions_of(size, *window) for size in sizes)

    def _set_sizes(self, height, width, types):
        size = self.kernel_size
        self._window = Window(height, width, size, self.strides, self.padding)
        self._kernel_shape = (size, size, types)
        # A single "place": the k * k positions do not share weights.
        self._field = (1, size**2 * types)
        if self.options.normalise == "types":
            self._parents = OverTypes(self.num_capsules)
        else:
            by_type = self.options.normalise == "positions"
            self._parents = OverPositions(
                self.num_capsules, self._window, by_type
            )

    def _patches(self, grid):
        return self._window.patches(grid)

    def get_config(self):
        return {
            **super().get_config(),
            "kernel_size": self.kernel_size,
            "strides": self.strides,
            "padding": self.padding,
        }


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

    def _grid(self, *sizes):
        return ()

    def _set_sizes(self, height, width, types):
        self._kernel_shape = (types,)
        self._field = (height * width, types)
        self._parents = OverTypes(self.num_capsules)
        if self.coordinates:
            offsets = np.zeros((POSE_ENTRIES, height, width, types), "float32")
            rows, columns = map(self._coordinates_along, (height, width))
            offsets[ROW_ENTRY] = rows[:, None, None]
            offsets[COLUMN_ENTRY] = columns[:, None]
            self._offsets = offsets.reshape(POSE_ENTRIES, -1)

    def _coordinates_along(self, size):
        return (np.arange(size) + 0.5) / size

    def get_config(self):
        config = {**super().get_config(), "coordinates": self.coordinates}
        del config["normalise"]
        return config
