"""Efficient-CapsNet: primary capsules, self-attention routing, the network.

Axes: B batch, I input capsules with `a` atoms, O output capsules with A atoms.

Source: V. Mazzia, F. Salvetti, M. Chiaberge, "Efficient-CapsNet: capsule
network with self-attention routing", Scientific Reports 11, 14634 (2021),
https://arxiv.org/abs/2101.12491.
"""

import math
from typing import Any, Literal

import keras
from keras import backend, ops

from ..backends import is_exporting
from ..base_layers import (
    EPSILON,
    CapsuleLayer,
    Layer,
    Shape,
    Tensor,
    batch_normalization,
    mask_out,
    registered,
    slice_axis,
    with_mask,
)
from .base import Tensors, network


def exponential_squash(capsules: Tensor) -> Tensor:
    """Shrinks each capsule to a length below 1 and keeps its direction.

    v = (1 - exp(-|s|)) * s / |s|. For a zero capsule, v is 0 and dv / ds is the
    identity, the limit; in the authors' code it is NaN with XLA, otherwise 0.
    Capsules are [..., A]; lengths are computed in float32.
    """
    s = ops.cast(capsules, "float32")
    squared = ops.sum(ops.square(s), axis=-1, keepdims=True)
    length = ops.sqrt(squared + EPSILON)
    # expm1 is more accurate for small lengths; ONNX does not have it.
    excess = ops.exp(-length) - 1 if is_exporting() else ops.expm1(-length)
    dtype = keras.backend.result_type(capsules.dtype, float)
    return ops.cast(-excess / length * s, dtype)


def self_attention(votes: Tensor) -> Tensor:
    """Self-attention of votes u [B, O, I, A]: float32 [B, O, I].

    softmax over o of (sum over k of <u[b, o, i], u[b, o, k]> / sqrt(A)).
    """
    u = ops.cast(votes, "float32")
    # Summed over k first, so no tensor [B, O, I, I] is formed.
    agreement = ops.sum(u * ops.sum(u, axis=2, keepdims=True), axis=-1)
    return ops.softmax(agreement / math.sqrt(u.shape[-1]), axis=1)


def self_attention_routing(votes: Tensor, biases: Tensor) -> Tensor:
    """Output capsules: squash(sum over i of c[b, o, i] u[b, o, i, :]).

    The couplings c are `self_attention` plus biases [O, I]; the squash is
    `exponential_squash`. Votes u are [B, O, I, A], the result is [B, O, A].
    """
    couplings = self_attention(votes) + ops.cast(biases, "float32")
    u = ops.cast(votes, "float32")
    routed = ops.sum(ops.expand_dims(couplings, -1) * u, axis=2)
    dtype = backend.result_type(votes.dtype, float)
    return ops.cast(exponential_squash(routed), dtype)


@registered
class DepthwiseCapsule(Layer):
    """Primary capsules: a depthwise convolution at a single position.

    The kernel of each channel covers the first k rows and the first l columns
    of the map. Each group of `num_atoms` successive output channels becomes a
    capsule, which `exponential_squash` squashes.

    Weights: `kernel` [k, l, C], initially Glorot uniform as in
    `keras.layers.DepthwiseConv2D`, and `bias` [C], initially 0.

    Args:
      num_atoms: int, `a`, atoms of a capsule; must divide C.
      kernel_size: int k = l or pair of ints (k, l); None for the whole map.

    Input shape: [B, H, W, C]. Output shape: [B, C / a, a].
    """

    arguments = ("num_atoms", "kernel_size")

    def __init__(
        self,
        num_atoms: int,
        kernel_size: int | tuple[int, int] | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if isinstance(kernel_size, int):
            kernel_size = (kernel_size, kernel_size)
        self.num_atoms = num_atoms
        self.kernel_size = kernel_size and tuple(kernel_size)
        self.input_spec = keras.layers.InputSpec(ndim=4)

    def build(self, input_shape: Shape) -> None:
        _, *map_size, channels = input_shape
        kernel_size = self.kernel_size or tuple(map_size)
        if channels % self.num_atoms:
            raise ValueError(
                f"The channels must be a multiple of {self.num_atoms} atoms. "
                f"Received: input_shape={input_shape}"
            )
        # Glorot's range depends on the shape, which in Keras is [k, l, C, 1].
        glorot = keras.initializers.GlorotUniform()
        self.kernel = self.add_weight(
            (*kernel_size, channels),
            lambda shape, dtype: ops.squeeze(glorot((*shape, 1), dtype), -1),
            name="kernel",
        )
        self.bias = self.add_weight((channels,), "zeros", name="bias")
        self.input_spec = keras.layers.InputSpec(shape=(None, *input_shape[1:]))

    def call(self, inputs: Tensor) -> Tensor:
        rows, columns, channels = self.kernel.shape
        field = slice_axis(slice_axis(inputs, 1, stop=rows), 2, stop=columns)
        field = ops.cast(field, self.compute_dtype)
        s = ops.sum(field * self.kernel, axis=(1, 2)) + self.bias  # [B, C]
        shape = (-1, channels // self.num_atoms, self.num_atoms)
        return exponential_squash(ops.reshape(s, shape))

    def multiply_adds(self, input_shape: Shape) -> int:
        return math.prod(self.kernel.shape)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        capsules = input_shape[-1] // self.num_atoms
        return (input_shape[0], capsules, self.num_atoms)


@registered
class SelfAttentionCapsule(CapsuleLayer):
    """Fully connected capsules with self-attention routing.

    votes[b, o, i, :] = inputs[b, i, :] @ weights[o, i, :, :]. The votes are
    routed by `self_attention_routing`; masked input capsules cast no votes.

    Weights: `weights` [O, I, a, A], initially `he_normal` with the fan-in
    O * I * a, and `biases` [O, I] of the couplings, initially 0.

    Args:
      num_capsules: int, O, number of output capsules.
      num_atoms: int, A, atoms of an output capsule.

    Input shape: [B, I, a]. Output shape: [B, O, A].
    """

    def build(self, input_shape: Shape) -> None:
        _, inputs, input_atoms = input_shape
        shape = self.num_capsules, inputs, input_atoms, self.num_atoms
        self.kernel = self.add_weight(shape, "he_normal", name="weights")
        self.biases = self.add_weight(shape[:2], "zeros", name="biases")
        self.input_spec = keras.layers.InputSpec(shape=(None, *input_shape[1:]))

    def call(self, inputs: Tensor, mask: Tensor | None = None) -> Tensor:
        return self_attention_routing(self._votes(inputs, mask), self.biases)

    def attention(self, inputs: Tensor, mask: Tensor | None = None) -> Tensor:
        """Couplings of inputs [B, I, a] without biases: float32 [B, I, O]."""
        return with_mask(self._attention, inputs, mask)

    def couplings(self, inputs: Tensor, mask: Tensor | None = None) -> Tensor:
        """`attention` with an axis for its only iteration: [1, B, I, O]."""
        return self.attention(inputs, mask)[None]

    def _attention(self, inputs, mask):
        attention = self_attention(self._votes(inputs, mask))
        return mask_out(ops.transpose(attention, (0, 2, 1)), mask)

    def _votes(self, inputs, mask):
        # Keras casts only floats, and only in `__call__`.
        inputs = ops.cast(mask_out(inputs, mask), self.compute_dtype)
        kernel = ops.cast(self.kernel, self.compute_dtype)
        return ops.einsum("bia,oiac->boic", inputs, kernel)

    def multiply_adds(self, input_shape: Shape) -> int:
        return math.prod(self.kernel.shape)


def layout(height, width):
    """Returns (kernel sizes, strides, kernel size of the primary capsules).

    The first convolution is 5x5, or 7x7 with stride 2 for images of at least
    48x48. Three 3x3 convolutions follow. The last 1, 2 or 3 of these have
    stride 2: the fewest that make the shorter side of the last map at most 9.
    There is no padding. The primary capsules' kernel has the size of this map;
    after a 5x5 convolution, its even sides are reduced by 1: to 5x5 for
    MultiMNIST's 6x6 map. The authors' networks follow these rules.
    """
    is_large = min(height, width) >= 48
    kernels = (7 if is_large else 5, 3, 3, 3)
    for num_strided in (1, 2, 3):
        rest = (1,) * (3 - num_strided) + (2,) * num_strided
        strides = (2 if is_large else 1, *rest)
        sides = [height, width]
        for kernel, stride in zip(kernels, strides, strict=True):
            sides = [(side - kernel) // stride + 1 for side in sides]
        if min(sides) <= 9:
            break
    if not is_large:
        sides = [side - (side + 1) % 2 for side in sides]
    return kernels, strides, tuple(sides)


@network("`margin_loss`", "max(5e-5, 5e-4 * 0.97 ** (step // 3750))", 1e-7)
def efficient_capsule(
    images: Tensor,
    num_classes: int,
    *,
    first_channels: int = 32,
    middle_channels: int = 64,
    num_prime_capsules: int = 16,
    primary_atoms: int = 8,
    class_atoms: int = 16,
    normalization: Literal["batch", "instance"] = "batch",
) -> Tensors:
    """Four convolutions, primary capsules, self-attention.

    Normalization follows each convolution; `layout` gives all kernel sizes. A
    depthwise convolution at a single position makes the primary capsules.
    Self-attention routes them to one capsule per class. Logits are the lengths
    |v| of these capsules; the authors' logits are sqrt(|v|^2 + 1e-7). Images
    have at least 11x11 pixels.

    Args:
      first_channels: int, channels of the first convolution.
      middle_channels: int, channels of the next two convolutions.
      num_prime_capsules: int, number of primary capsules.
      primary_atoms: int, atoms of a primary capsule.
      class_atoms: int, atoms of a class capsule.
      normalization: str, what follows each convolution: batch normalization
        after relu, or instance normalization after leaky relu, as for
        smallNORB.
    """
    kernels, strides, primary_size = layout(*images.shape[1:3])
    last_channels = num_prime_capsules * primary_atoms
    channels = first_channels, middle_channels, middle_channels, last_channels
    is_batch = normalization == "batch"
    outputs, x = {}, images
    for i in range(4):
        x = outputs[f"conv{i + 1}"] = keras.layers.Conv2D(
            channels[i],
            kernels[i],
            strides=strides[i],
            activation="relu" if is_batch else keras.layers.LeakyReLU(0.3),
            kernel_initializer="he_normal",
            data_format="channels_last",
            name=f"conv{i + 1}",
        )(x)
        norm = f"norm{i + 1}"
        if is_batch:
            x = batch_normalization(norm, momentum=0.99, epsilon=1e-3)(x)
        else:  # group normalization with a group for each channel
            x = keras.layers.GroupNormalization(-1, name=norm)(x)
    x = outputs["primary_capsule"] = DepthwiseCapsule(
        primary_atoms, primary_size, name="primary_capsule"
    )(x)
    layer = SelfAttentionCapsule(num_classes, class_atoms, name="class_capsule")
    outputs["class_capsule"] = outputs["capsules"] = layer(x)
    return outputs
