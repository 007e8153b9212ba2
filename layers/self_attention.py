"""Efficient-CapsNet's layers: primary capsules, and routing in one step.

Axes, atoms always last: B batch, I input capsules of a atoms each, O output
capsules of A atoms each.

Source: V. Mazzia, F. Salvetti, M. Chiaberge, "Efficient-CapsNet: capsule
network with self-attention routing", Scientific Reports 11, 14634 (2021),
https://arxiv.org/abs/2101.12491.
"""

import math
import numbers

import keras
from keras import ops

from .capsule import require_axes, require_positive
from .utils import Tensor, slice_axis

# Added to the squared length under its root. It keeps the root's gradient
# finite at zero and is below float32 rounding for every length >= 1e-4.
_EPSILON = 1e-16


def exponential_squash(capsules: Tensor) -> Tensor:
    """Shrinks each capsule to a length below 1 and keeps its direction.

    v = (1 - exp(-|s|)) * s / |s|. Of a zero capsule the value is 0, and the
    gradient the identity, to which that of small capsules tends; the authors'
    code gives NaN there.

    Args:
      capsules: tensor [..., A].

    Returns:
      Tensor of the same shape and type. Lengths are computed in float32.
    """
    s = ops.cast(capsules, "float32")
    squared = ops.sum(ops.square(s), axis=-1, keepdims=True)
    length = ops.sqrt(squared + _EPSILON)
    return ops.cast(-ops.expm1(-length) / length * s, capsules.dtype)


def self_attention(votes: Tensor) -> Tensor:
    """How votes attend to each other, shared among the outputs.

    softmax over o of sum over k of <u[b, o, i], u[b, o, k]> / sqrt(A). The sum
    over k is taken of the votes themselves, so that no table of pairs of
    inputs is made.

    Args:
      votes: tensor u [B, O, I, A].

    Returns:
      float32 tensor [B, O, I], whose sum over O is 1.
    """
    u = ops.cast(votes, "float32")
    agreement = ops.sum(u * ops.sum(u, axis=2, keepdims=True), axis=-1)
    return ops.softmax(agreement / math.sqrt(u.shape[-1]), axis=1)


def self_attention_routing(votes: Tensor, biases: Tensor) -> Tensor:
    """The output capsules: squash(sum over i of c[b, o, i] u[b, o, i, :]).

    The couplings c are `self_attention` plus a bias for each pair of capsules.

    Args:
      votes: tensor u [B, O, I, A].
      biases: tensor [O, I].

    Returns:
      Tensor [B, O, A] of the type of `votes`.
    """
    couplings = self_attention(votes) + ops.cast(biases, "float32")
    u = ops.cast(votes, "float32")
    routed = ops.sum(ops.expand_dims(couplings, -1) * u, axis=2)
    return ops.cast(exponential_squash(routed), votes.dtype)


@keras.saving.register_keras_serializable(package="capsules")
class DepthwiseCapsule(keras.layers.Layer):
    """Capsules from a whole map of features: one kernel for each channel.

    A depthwise convolution at one position, the map's first `kernel_size` rows
    and columns; its channels, in their order, become capsules of `num_atoms`
    atoms, which are squashed by `exponential_squash`.

    Weights: `kernel` [k, l, C], Glorot uniform as Keras' DepthwiseConv2D has
    it, and `bias` [C], zeros.

    Args:
      num_atoms: int, a; it divides the number of channels.
      kernel_size: int or pair of ints, rows and columns, or None for the
        whole map.
      **kwargs: of `keras.layers.Layer`.

    Input shape: [B, H, W, C]. Output shape: [B, C / a, a].

    Raises:
      ValueError: for arguments that are not positive integers, and at build
        if the input does not have four axes of which the last three are
        known, is smaller than the kernel, or has channels that the atoms do
        not divide.
    """

    def __init__(
        self,
        num_atoms: int,
        kernel_size: int | tuple[int, int] | None = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        require_positive(num_atoms=num_atoms)
        if kernel_size is not None:
            if isinstance(kernel_size, numbers.Integral):
                kernel_size = (kernel_size, kernel_size)
            rows, columns = kernel_size
            require_positive(rows=rows, columns=columns)
            kernel_size = (rows, columns)
        self.num_atoms = num_atoms
        self.kernel_size = kernel_size
        self.input_spec = keras.layers.InputSpec(ndim=4)

    def build(self, input_shape):
        require_axes(self, input_shape, "height", "width", "channels")
        _, height, width, channels = input_shape
        rows, columns = self.kernel_size or (height, width)
        if rows > height or columns > width:
            raise ValueError(
                f"{self.name}: height and width must be at least kernel_size="
                f"{self.kernel_size}. Received: {tuple(input_shape)}"
            )
        if channels % self.num_atoms:
            raise ValueError(
                f"{self.name}: channels must be a multiple of num_atoms="
                f"{self.num_atoms}. Received: {tuple(input_shape)}"
            )
        # Drawn in the shape in which Keras has such kernels, whose spread
        # depends on it.
        drawn = keras.initializers.GlorotUniform()
        self.kernel = self.add_weight(
            name="kernel",
            shape=(rows, columns, channels),
            initializer=lambda shape, dtype: ops.reshape(
                drawn((*shape, 1), dtype=dtype), shape
            ),
        )
        self.bias = self.add_weight(
            name="bias", shape=(channels,), initializer="zeros"
        )
        self.input_spec = keras.layers.InputSpec(shape=(None, *input_shape[1:]))

    def call(self, inputs):
        rows, columns, _ = self.kernel.shape
        seen = slice_axis(slice_axis(inputs, 1, stop=rows), 2, stop=columns)
        channels = ops.sum(seen * self.kernel, axis=(1, 2)) + self.bias
        return exponential_squash(
            ops.reshape(
                channels,
                (-1, channels.shape[-1] // self.num_atoms, self.num_atoms),
            )
        )

    def multiply_adds(self, input_shape):
        """Products with weights for one example."""
        return math.prod(self.kernel.shape)

    def compute_output_shape(self, input_shape):
        capsules = input_shape[-1] // self.num_atoms
        return (input_shape[0], capsules, self.num_atoms)

    def get_config(self):
        return {
            **super().get_config(),
            "num_atoms": self.num_atoms,
            "kernel_size": self.kernel_size,
        }


@keras.saving.register_keras_serializable(package="capsules")
class SelfAttentionCapsule(keras.layers.Layer):
    """Fully connected capsules that attend to their votes, without iterations.

    votes[b, o, i, :] = inputs[b, i, :] @ weights[o, i, :, :], then
    `self_attention_routing`.

    Weights: `weights` [O, I, a, A], he-normal as Keras computes it on that
    shape, and `biases` [O, I] of the couplings, zeros.

    Args:
      num_capsules: int, O, the number of output capsules.
      num_atoms: int, A, the atoms of each.
      **kwargs: of `keras.layers.Layer`.

    Input shape: [B, I, a]. Output shape: [B, O, A].

    Raises:
      ValueError: for arguments that are not positive integers, and at build
        if the input does not have three axes of which the last two are known.
    """

    def __init__(self, num_capsules: int, num_atoms: int, **kwargs):
        super().__init__(**kwargs)
        require_positive(num_capsules=num_capsules, num_atoms=num_atoms)
        self.num_capsules = num_capsules
        self.num_atoms = num_atoms
        self.input_spec = keras.layers.InputSpec(ndim=3)

    def build(self, input_shape):
        require_axes(self, input_shape, "capsules", "atoms")
        _, inputs, input_atoms = input_shape
        self.kernel = self.add_weight(
            name="weights",
            shape=(self.num_capsules, inputs, input_atoms, self.num_atoms),
            initializer="he_normal",
        )
        self.biases = self.add_weight(
            name="biases",
            shape=(self.num_capsules, inputs),
            initializer="zeros",
        )
        self.input_spec = keras.layers.InputSpec(
            shape=(None, inputs, input_atoms)
        )

    def call(self, inputs):
        return self_attention_routing(self._votes(inputs), self.biases)

    def attention(self, inputs):
        """How the built layer shares input capsules among its outputs.

        Args:
          inputs: tensor [B, I, a].

        Returns:
          float32 tensor [B, I, O], whose sum over O is 1: the couplings
          without their biases.
        """
        return ops.transpose(self_attention(self._votes(inputs)), (0, 2, 1))

    def _votes(self, inputs):
        # `attention` is called where nothing is cast by itself.
        inputs, kernel = (
            ops.cast(values, self.compute_dtype)
            for values in (inputs, self.kernel)
        )
        return ops.einsum("bia,oiac->boic", inputs, kernel)

    def multiply_adds(self, input_shape):
        """Products with weights for one example: those of its votes."""
        return math.prod(self.kernel.shape)

    def compute_output_shape(self, input_shape):
        return (input_shape[0], self.num_capsules, self.num_atoms)

    def get_config(self):
        return {
            **super().get_config(),
            "num_capsules": self.num_capsules,
            "num_atoms": self.num_atoms,
        }
