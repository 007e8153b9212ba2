"""Matrix capsules: a pose of 4x4 and an activation, routed by EM.

Each layer takes and gives a pair: poses [B, H, W, types, 16], the matrices
row by row, and activations [B, H, W, types], float32 in [0, 1] also under
mixed precision.

Source: the paper of `em_routing`, section 4.
"""

import math

import keras
import numpy as np
from keras import ops

from .blocks import block_size, by_blocks
from .capsule import (
    padding_of,
    require_axes,
    require_bool,
    require_positive,
)
from .em_routing import (
    COLUMN_ENTRY,
    POSE_ENTRIES,
    POSE_SIZE,
    ROW_ENTRY,
    EMOptions,
    OverPositions,
    OverTypes,
    matrix_votes,
    route,
)
from .utils import TruncatedNormal, Window

# Costs are in the hundreds, while Adam moves a weight by about the learning
# rate at a step: so the weight `beta_a` is in thousands.
BETA_A_UNIT = 1000.0
POSE_STDDEV = 0.5
KERNEL_STDDEV = 0.3


@keras.saving.register_keras_serializable(package="capsules")
class PrimaryMatrixCapsules(keras.layers.Layer):
    """The first capsules: a 1x1 convolution to poses and to activations.

    Poses are linear in the channels of their position, activations a sigmoid
    of linear functions.

    Weights, with C channels: `pose_weights` [C, I * 16], truncated normal of
    stddev 0.5 (the authors' code), `pose_biases`, `activation_weights` [C, I]
    of stddev 0.5 and `activation_biases`; biases are 0 at the start.

    Args:
      num_capsules: int, I, the number of capsule types.
      **kwargs: of `keras.layers.Layer`.

    Input shape: [B, H, W, C]. Output shapes: [B, H, W, I, 16] and
    [B, H, W, I].

    Raises:
      ValueError: for `num_capsules` that is not a positive integer, and at
        build if the input does not have four axes, all but the first known.
    """

    def __init__(self, num_capsules: int, **kwargs):
        super().__init__(**kwargs)
        require_positive(num_capsules=num_capsules)
        self.num_capsules = num_capsules
        self.input_spec = keras.layers.InputSpec(ndim=4)

    def build(self, input_shape):
        require_axes(self, input_shape, "height", "width", "channels")
        for name, size in (
            ("pose", self.num_capsules * POSE_ENTRIES),
            ("activation", self.num_capsules),
        ):
            weights = self.add_weight(
                name=f"{name}_weights",
                shape=(input_shape[-1], size),
                initializer=TruncatedNormal(stddev=POSE_STDDEV),
            )
            biases = self.add_weight(
                name=f"{name}_biases", shape=(size,), initializer="zeros"
            )
            setattr(self, f"{name}_weights", weights)
            setattr(self, f"{name}_biases", biases)

    def call(self, inputs):
        poses = ops.matmul(inputs, self.pose_weights) + self.pose_biases
        logits = (
            ops.matmul(inputs, self.activation_weights) + self.activation_biases
        )
        positions = inputs.shape[1:3]
        return (
            ops.reshape(
                poses, (-1, *positions, self.num_capsules, POSE_ENTRIES)
            ),
            ops.sigmoid(ops.cast(logits, "float32")),
        )

    def multiply_adds(self, input_shape):
        """Products with weights for one example."""
        return (
            math.prod(input_shape[1:]) * self.num_capsules * (POSE_ENTRIES + 1)
        )

    def get_config(self):
        return {**super().get_config(), "num_capsules": self.num_capsules}


class _EMRoutedLayer(keras.layers.Layer):
    """What both routed layers share: parents, options, weights and blocks."""

    def __init__(
        self,
        num_capsules: int,
        num_routing: int,
        final_lambda: float,
        min_variance: float,
        damping: float,
        normalise: str,
        kernel_stddev: float = KERNEL_STDDEV,
        **kwargs,
    ):
        # Activations are not to be rounded on the way from layer to layer.
        super().__init__(autocast=False, **kwargs)
        require_positive(num_capsules=num_capsules)
        self.num_capsules = num_capsules
        self.options = EMOptions(
            num_routing, final_lambda, min_variance, damping, normalise
        )
        if not kernel_stddev > 0:
            raise ValueError(
                f"kernel_stddev must be positive. Received: {kernel_stddev!r}"
            )
        self.kernel_stddev = kernel_stddev

    def build(self, input_shape):
        poses, activations = (tuple(shape) for shape in input_shape)
        if (
            len(poses) != 5
            or None in poses[1:]
            or poses[-1] != POSE_ENTRIES
            or activations[1:] != poses[1:-1]
        ):
            raise ValueError(
                f"{self.name} needs poses of the shape (batch, height, width, "
                f"capsules, {POSE_ENTRIES}) and activations of that without "
                "the last axis, all but the batch known. Received: "
                f"{poses} and {activations}"
            )
        self._build_for(*poses[1:4])
        # Some four tensors have the size of all votes.
        self._block_size = block_size(4 * self._num_votes * POSE_ENTRIES)
        types = self.num_capsules
        self.kernel = self.add_weight(
            name="weights",
            shape=(*self._kernel_shape, types, POSE_SIZE, POSE_SIZE),
            initializer=TruncatedNormal(stddev=self.kernel_stddev),
        )
        self.beta_u, self.beta_a = (
            self.add_weight(name=name, shape=(types,), initializer="zeros")
            for name in ("beta_u", "beta_a")
        )
        self.input_spec = [
            keras.layers.InputSpec(shape=(None, *shape[1:]))
            for shape in (poses, activations)
        ]

    def call(self, inputs):
        poses, logits = by_blocks(
            self._capsules_of_images,
            self._fields(*inputs),
            self._constants(),
            self._block_size,
        )
        shape = (-1, *self._positions, self.num_capsules)
        poses = ops.reshape(poses, (*shape, POSE_ENTRIES))
        return (
            ops.cast(poses, self.compute_dtype),
            ops.sigmoid(ops.reshape(logits, shape)),
        )

    def compute_output_spec(self, inputs):
        # What blocks of an unknown batch give cannot be inferred.
        shape = (inputs[0].shape[0], *self._positions, self.num_capsules)
        return (
            keras.KerasTensor((*shape, POSE_ENTRIES), self.compute_dtype),
            keras.KerasTensor(shape, "float32"),
        )

    def multiply_adds(self, input_shape):
        """Products with weights for one example: those of its votes."""
        return self._num_votes * POSE_SIZE**3

    def assignments(self, inputs):
        """Which parents the children of the built layer are assigned to.

        Args:
          inputs: as of a call.

        Returns:
          float32 tensor [num_routing, B, positions, K, O]: the assignments R
          of each iteration, by position of a parent, child in its receptive
          field, and type of the parent.
        """
        (assignments,) = by_blocks(
            self._assignments_of_images,
            self._fields(*inputs),
            self._constants(),
            self._block_size,
        )
        return ops.moveaxis(assignments, 1, 0)

    def _fields(self, poses, activations):
        """What the parents of each position n see, of every image.

        Returns:
          List of two float32 tensors: poses [B, n, 4, 4, P, C], of C children
          at each of P places as `matrix_votes` has them, and activations
          [B, n, P * C].
        """
        poses = self._receptive_fields(ops.cast(poses, "float32"))
        _, positions, places, children, _ = poses.shape
        poses = ops.reshape(
            ops.transpose(poses, (0, 1, 4, 2, 3)),
            (-1, positions, POSE_SIZE, POSE_SIZE, places, children),
        )
        activations = self._receptive_fields(activations[..., None])
        return [
            poses,
            ops.reshape(activations, (-1, positions, places * children)),
        ]

    def _constants(self):
        # Tensors: a variable would be read again when blocks are computed for
        # the second time. Rounded as all weights are by mixed precision.
        kernel = ops.cast(ops.cast(self.kernel, self.compute_dtype), "float32")
        kernel = ops.reshape(kernel, (-1, *kernel.shape[-3:]))
        return [
            ops.transpose(kernel, (1, 2, 3, 0)),
            ops.cast(self.beta_u, "float32"),
            ops.cast(self.beta_a, "float32") * BETA_A_UNIT,
        ]

    def _capsules_of_images(self, *arguments):
        """A block's poses [b, n, O, 16] and logits of activations [b, n, O]."""
        poses, logits, _ = self._route(*arguments)
        return (
            ops.swapaxes(self._by_image(poses), -1, -2),
            self._by_image(logits),
        )

    def _assignments_of_images(self, *arguments):
        """A block's assignments [b, num_routing, n, K, O], alone in a tuple."""
        _, _, assignments = self._route(*arguments)
        by_image = [self._by_image(each) for each in assignments]
        return (ops.stack(by_image, axis=1),)

    def _route(self, poses, activations, kernel, beta_u, beta_a):
        """Routes to all positions of a block of images, as `route` does."""
        votes = matrix_votes(ops.reshape(poses, (-1, *poses.shape[2:])), kernel)
        return route(
            self._placed(votes),
            ops.reshape(activations, (-1, activations.shape[-1])),
            beta_u,
            beta_a,
            self.options,
            self._parents,
        )

    def _by_image(self, of_parents):
        """[O, b * n, ...] to [b, n, ..., O]."""
        of_parents = ops.moveaxis(of_parents, 0, -1)
        positions = math.prod(self._positions)
        return ops.reshape(of_parents, (-1, positions, *of_parents.shape[1:]))

    def _placed(self, votes):
        """The votes with what depends on the places that they come from."""
        return votes

    def get_config(self):
        return {
            **super().get_config(),
            "num_capsules": self.num_capsules,
            "num_routing": self.options.num_routing,
            "final_lambda": self.options.final_lambda,
            "min_variance": self.options.min_variance,
            "damping": self.options.damping,
            "kernel_stddev": self.kernel_stddev,
        }


@keras.saving.register_keras_serializable(package="capsules")
class ConvMatrixCapsules(_EMRoutedLayer):
    """Convolutional matrix capsules.

    Each parent sees the children of k x k positions, whose votes are their
    poses times `weights`, which all positions share. Parents of all positions
    that see a child compete for it.

    Weights, with I child types: `weights` [k, k, I, O, 4, 4], truncated normal
    of `kernel_stddev`; `beta_u` and `beta_a` [O], 0 at the start, `beta_a` in
    thousands.

    Args:
      num_capsules: int, O, the number of parent types.
      kernel_size: int, k, height and width of a receptive field.
      strides: int, the stride in both directions.
      padding: "VALID" or "SAME", in either case.
      num_routing, final_lambda, min_variance, damping, normalise: of
        `em_routing.EMOptions`.
      kernel_stddev: float, of the initial `weights`; 0.3 in the authors' code.
      **kwargs: of `keras.layers.Layer`.

    Input: pair of poses [B, H, W, I, 16] and activations [B, H, W, I].
    Output: pair of poses [B, h, w, O, 16] and activations [B, h, w, O].

    Raises:
      ValueError: for arguments out of range, and at build if the input has
        not the shapes above, or is smaller than the kernel under VALID padding.
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
        super().__init__(
            num_capsules,
            num_routing,
            final_lambda,
            min_variance,
            damping,
            normalise,
            kernel_stddev,
            **kwargs,
        )
        require_positive(kernel_size=kernel_size, strides=strides)
        self.kernel_size = kernel_size
        self.strides = strides
        self.padding = padding_of(padding)

    def _build_for(self, height, width, types):
        size = self.kernel_size
        if self.padding == "VALID" and min(height, width) < size:
            raise ValueError(
                f"{self.name}: with VALID padding height and width must be at "
                f"least kernel_size={size}. Received: {height}x{width}"
            )
        self._window = Window(height, width, size, self.strides, self.padding)
        self._positions = self._window.positions
        self._kernel_shape = (size, size, types)
        self._num_votes = (
            math.prod(self._positions) * size**2 * types * self.num_capsules
        )
        if self.options.normalise == "types":
            self._parents = OverTypes(self.num_capsules)
        else:
            self._parents = OverPositions(
                self.num_capsules,
                self._window,
                by_type=self.options.normalise == "positions",
            )

    def _receptive_fields(self, grid):
        """[B, H, W, I, ...] to [B, n, 1, K, ...]: no place is like another."""
        shape = (math.prod(self._positions), 1, math.prod(self._kernel_shape))
        return ops.reshape(
            self._window.patches(grid), (-1, *shape, *grid.shape[4:])
        )

    def get_config(self):
        return {
            **super().get_config(),
            "kernel_size": self.kernel_size,
            "strides": self.strides,
            "padding": self.padding,
            "normalise": self.options.normalise,
        }


@keras.saving.register_keras_serializable(package="capsules")
class ClassMatrixCapsules(_EMRoutedLayer):
    """One matrix capsule for each class, voted for by all children.

    The transformations are those of a child's type at every position. So that
    votes know where they come from, the position of the child, scaled to
    (0, 1), is added to the first two entries of the right-hand column of its
    vote: the row to entry 3, the column to entry 7.

    Weights, with I child types: `weights` [I, O, 4, 4], truncated normal of
    `kernel_stddev`; `beta_u` and `beta_a` [O], 0 at the start, `beta_a` in
    thousands.

    Args:
      num_capsules: int, O, the number of classes.
      num_routing, final_lambda, min_variance, damping: of
        `em_routing.EMOptions`.
      coordinates: bool, whether positions are added.
      kernel_stddev: float, of the initial `weights`; 0.01 in the authors'
        code.
      **kwargs: of `keras.layers.Layer`.

    Input: pair of poses [B, H, W, I, 16] and activations [B, H, W, I].
    Output: pair of poses [B, O, 16] and activations [B, O].

    Raises:
      ValueError: for arguments out of range, and at build if the input has
        not the shapes above.
    """

    _positions = ()

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
        super().__init__(
            num_capsules,
            num_routing,
            final_lambda,
            min_variance,
            damping,
            EMOptions.normalise,
            kernel_stddev,
            **kwargs,
        )
        require_bool(coordinates=coordinates)
        self.coordinates = coordinates

    def _build_for(self, height, width, types):
        self._kernel_shape = (types,)
        self._parents = OverTypes(self.num_capsules)
        offsets = np.zeros((POSE_ENTRIES, height, width, types), "float32")
        rows, columns = ((np.arange(n) + 0.5) / n for n in (height, width))
        offsets[ROW_ENTRY] = rows[:, None, None]
        offsets[COLUMN_ENTRY] = columns[:, None]
        self._offsets = offsets.reshape(POSE_ENTRIES, -1)
        self._num_votes = height * width * types * self.num_capsules

    def _receptive_fields(self, grid):
        """[B, H, W, I, ...] to [B, 1, H * W, I, ...]."""
        height, width, *others = grid.shape[1:]
        return ops.reshape(grid, (-1, 1, height * width, *others))

    def _placed(self, votes):
        if not self.coordinates:
            return votes
        return votes + ops.convert_to_tensor(self._offsets)

    def get_config(self):
        return {**super().get_config(), "coordinates": self.coordinates}
