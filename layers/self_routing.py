"""Self-routing: each capsule decides by its own pose where it is sent.

There is neither agreement nor iteration: a linear layer maps the pose of a
child to its coupling coefficients. Capsules are pairs of poses [B, H, W, types,
atoms] and activations [B, H, W, types] in [0, 1]. Activations are float32 under
every policy.

Source: T. Hahn, M. Pyeon, G. Kim, "Self-Routing Capsule Networks" (NeurIPS
2019), and the authors' code, which adds biases to the couplings' logits.
"""

import math

import keras
from keras import ops

from .utils import Tensor, Window, is_mirrored
from .votes import linear_votes

# Below the rounding error of a sum of activations.
_EPSILON = 1e-12


def self_routing(
    poses: Tensor, activations: Tensor, weights: Tensor, biases: Tensor
) -> tuple[Tensor, Tensor]:
    """Coupling coefficients of children and activations of parents.

      c_ij = softmax over j of (w_ij . u_i + b_ij)
      a_j = sum over i of a_i c_ij / sum over i of a_i

    The activations of the parents sum to 1, or are 0 if those of all children
    are.

    Args:
      poses: tensor u [N, K, a].
      activations: tensor a_i [N, K], at least 0.
      weights: tensor w [K, a, O].
      biases: tensor b [K, O].

    Returns:
      Pair of float32 tensors: couplings [N, K, O] and activations [N, O].
    """
    logits = ops.matmul(ops.transpose(poses, (1, 0, 2)), weights)  # [K, N, O]
    logits = ops.cast(ops.transpose(logits, (1, 0, 2)), "float32")
    couplings = ops.softmax(logits + ops.cast(biases, "float32"), axis=-1)
    activations = ops.cast(activations, "float32")
    sums = ops.sum(activations[..., None] * couplings, axis=1)
    total = ops.sum(activations, axis=-1, keepdims=True)
    return couplings, sums / (total + _EPSILON)


def _normalization(layer):
    """Batch normalization of channels, with the constants of the authors."""
    return keras.layers.BatchNormalization(
        momentum=0.9,
        epsilon=1e-5,
        synchronized=is_mirrored(),
        dtype=layer.dtype_policy,
        name="normalization",
    )


class _SelfRoutingLayer(keras.layers.Layer):
    """Base class of layers that return activations and perhaps poses."""

    def __init__(self, num_capsules, **kwargs):
        super().__init__(**kwargs)
        self.num_capsules = num_capsules

    def compute_output_spec(self, inputs, training=False):
        shapes = keras.tree.map_structure(lambda tensor: tensor.shape, inputs)
        shape = self.compute_output_shape(shapes)
        if not isinstance(shape[0], tuple):
            return keras.KerasTensor(shape, "float32")
        poses, activations = shape
        return (
            keras.KerasTensor(poses, self.compute_dtype),
            keras.KerasTensor(activations, "float32"),
        )

    def get_config(self):
        return {**super().get_config(), "num_capsules": self.num_capsules}


@keras.saving.register_keras_serializable(package="capsules")
class PrimarySelfRoutingCapsules(_SelfRoutingLayer):
    """Primary capsules: a convolution to poses and to activations.

    The convolution has stride 1, SAME padding and no bias; batch normalization
    of each channel follows, then a sigmoid of the activations. With C input
    channels the kernel is [k, k, C, I * (a + 1)], initially He uniform.

    Args:
      num_capsules: int, I, number of capsule types.
      num_atoms: int, a, atoms of a pose.
      kernel_size: int, k, height and width of the kernel.

    Input shape: [B, H, W, C]. Output shapes: [B, H, W, I, a], [B, H, W, I].
    """

    def __init__(
        self, num_capsules: int, num_atoms: int, kernel_size: int = 3, **kwargs
    ):
        super().__init__(num_capsules, **kwargs)
        self.num_atoms = num_atoms
        self.kernel_size = kernel_size
        self.convolution = keras.layers.Conv2D(
            num_capsules * (num_atoms + 1),
            kernel_size,
            padding="same",
            use_bias=False,
            data_format="channels_last",
            kernel_initializer="he_uniform",
            dtype=self.dtype_policy,
            name="convolution",
        )
        self.normalization = _normalization(self)
        self.input_spec = keras.layers.InputSpec(ndim=4)

    def build(self, input_shape):
        self.convolution.build(input_shape)
        self.normalization.build(
            self.convolution.compute_output_shape(input_shape)
        )

    def call(self, inputs, training=False):
        channels = self.normalization(self.convolution(inputs), training)
        poses, logits = ops.split(
            channels, [self.num_capsules * self.num_atoms], axis=-1
        )
        shape = (-1, *inputs.shape[1:3], self.num_capsules, self.num_atoms)
        activations = ops.sigmoid(ops.cast(logits, "float32"))
        return ops.reshape(poses, shape), activations

    def compute_output_shape(self, input_shape):
        shape = (*input_shape[:-1], self.num_capsules)
        return (*shape, self.num_atoms), shape

    def multiply_adds(self, input_shape):
        kernel = self.convolution.kernel
        return math.prod((*input_shape[1:3], *kernel.shape))

    def get_config(self):
        return {
            **super().get_config(),
            "num_atoms": self.num_atoms,
            "kernel_size": self.kernel_size,
        }


class _SelfRoutedLayer(_SelfRoutingLayer):
    """Base class of layers that route children by `self_routing`."""

    _positions = ()  # the grid of parents

    def __init__(self, num_capsules, **kwargs):
        # Without autocast activations stay float32 under mixed precision.
        super().__init__(num_capsules, autocast=False, **kwargs)

    def build(self, input_shape):
        field, atoms = self._field(input_shape[1]), input_shape[0][-1]
        for name, shape in (("weights", (*field, atoms)), ("biases", field)):
            weight = self.add_weight(
                name=f"routing_{name}",
                shape=(*shape, self.num_capsules),
                initializer="zeros",
            )
            setattr(self, f"routing_{name}", weight)
        self.input_spec = [
            keras.layers.InputSpec(shape=(None, *shape[1:]))
            for shape in input_shape
        ]

    def _field(self, shape):
        """Axes of the children of a parent, for activations of this shape."""
        return shape[1:]

    def _patches(self, grid):
        """[B, H, W, ...] to the children of each parent position."""
        return grid

    def _route(self, inputs):
        """Poses and activations of children and the results of routing.

        Their axes are those of `self_routing`, with N = B * h * w.
        """
        poses, activations = inputs
        *field, atoms, parents = self.routing_weights.shape
        children = math.prod(field)
        poses = self._patches(ops.cast(poses, self.compute_dtype))
        poses = ops.reshape(poses, (-1, children, atoms))
        activations = self._patches(activations[..., None])
        activations = ops.reshape(activations, (-1, children))
        weights = ops.reshape(self.routing_weights, (children, atoms, parents))
        couplings, activations_of_parents = self_routing(
            poses,
            activations,
            ops.cast(weights, self.compute_dtype),
            ops.reshape(self.routing_biases, (children, parents)),
        )
        return poses, activations, couplings, activations_of_parents

    def couplings(self, inputs):
        """Coupling coefficients: float32 [B, h, w, K, O], of classes [B, K, O].

        K is the children of one parent position.
        """
        _, _, couplings, _ = self._route(inputs)
        return ops.reshape(
            couplings, (-1, *self._positions, *couplings.shape[1:])
        )


@keras.saving.register_keras_serializable(package="capsules")
class SelfRoutingCapsules(_SelfRoutedLayer):
    """Convolutional capsules with self-routing.

    Each parent has the children of k x k positions, whose couplings c sum to 1
    over the types of parents at one position. Its pose is

      u_j = sum over i of a_i c_ij W_ij u_i / sum over i of a_i c_ij

    after batch normalization of each type and atom. The activations of the
    types at one position sum to 1. Padding counts as children with activation
    0. All positions share the weights.

    Weights, with I child types of a atoms: `routing_weights` [k, k, I, a, O]
    and `routing_biases` [k, k, I, O], initially 0; `pose_weights`
    [k, k, I, a, O, d], initially uniform in +-sqrt(6 / (a O d)).

    Args:
      num_capsules: int, O, number of parent types.
      num_atoms: int, d, atoms of a parent's pose.
      kernel_size: int, k, height and width of a receptive field.
      strides: int, the stride in both directions.
      padding: "VALID" or "SAME", in upper or lower case.

    Input: pair of poses [B, H, W, I, a] and activations [B, H, W, I].
    Output: pair of poses [B, h, w, O, d] and activations [B, h, w, O].
    """

    def __init__(
        self,
        num_capsules: int,
        num_atoms: int,
        kernel_size: int,
        strides: int = 1,
        padding: str = "VALID",
        **kwargs,
    ):
        super().__init__(num_capsules, **kwargs)
        self.num_atoms = num_atoms
        self.kernel_size = kernel_size
        self.strides = strides
        self.padding = padding.upper()
        self.normalization = _normalization(self)

    def build(self, input_shape):
        super().build(input_shape)
        self._window = self._window_of(input_shape)
        self._positions = self._window.positions
        *field, atoms, types = self.routing_weights.shape
        numbers = types * self.num_atoms
        limit = math.sqrt(6 / (atoms * numbers))
        self.pose_weights = self.add_weight(
            name="pose_weights",
            shape=(*field, atoms, types, self.num_atoms),
            initializer=keras.initializers.RandomUniform(-limit, limit),
        )
        self.normalization.build((None, numbers))

    def _window_of(self, input_shape):
        _, height, width, _ = input_shape[1]
        return Window(
            height, width, self.kernel_size, self.strides, self.padding
        )

    def _field(self, shape):
        return (self.kernel_size, self.kernel_size, shape[-1])

    def _patches(self, grid):
        return self._window.patches(grid)

    def call(self, inputs, training=False):
        poses, activations, couplings, parents = self._route(inputs)
        *field, atoms, types, _ = self.pose_weights.shape
        weights = ops.reshape(
            ops.cast(self.pose_weights, self.compute_dtype),
            (math.prod(field), atoms, -1),
        )
        shares = activations[..., None] * couplings
        shares = shares / (ops.sum(shares, axis=1, keepdims=True) + _EPSILON)
        votes = linear_votes(poses, weights, types)
        poses = votes.weighted_sum(ops.moveaxis(shares, -1, votes.outputs_axis))
        poses = ops.reshape(poses, (-1, types * self.num_atoms))
        poses = ops.cast(poses, self.compute_dtype)
        poses = self.normalization(poses, training=training)
        shape = (-1, *self._positions, types)
        return (
            ops.reshape(poses, (*shape, self.num_atoms)),
            ops.reshape(parents, shape),
        )

    def compute_output_shape(self, input_shape):
        grid = self._window_of(input_shape).positions
        shape = (input_shape[0][0], *grid, self.num_capsules)
        return (*shape, self.num_atoms), shape

    def multiply_adds(self, input_shape):
        # One for each weight of the routing and of the poses.
        products = self.routing_weights.shape, self.pose_weights.shape
        return math.prod(self._positions) * sum(map(math.prod, products))

    def get_config(self):
        return {
            **super().get_config(),
            "num_atoms": self.num_atoms,
            "kernel_size": self.kernel_size,
            "strides": self.strides,
            "padding": self.padding,
        }


@keras.saving.register_keras_serializable(package="capsules")
class ClassSelfRoutingCapsules(_SelfRoutedLayer):
    """Class capsules: activations alone, by `self_routing` of all children.

    Positions do not share weights. The activations of the classes sum to 1.

    Weights, with children [H, W, I] of a atoms: `routing_weights`
    [H, W, I, a, O] and `routing_biases` [H, W, I, O], initially 0.

    Args:
      num_capsules: int, O, number of classes.

    Input: pair of poses [B, H, W, I, a] and activations [B, H, W, I].
    Output: activations [B, O].
    """

    def call(self, inputs):
        *_, activations = self._route(inputs)
        return activations

    def compute_output_shape(self, input_shape):
        return (input_shape[0][0], self.num_capsules)

    def multiply_adds(self, input_shape):
        return math.prod(self.routing_weights.shape)
