"""Layers of DeepCaps: convolutional capsules, routing over maps, a decoder.

Source: J. Rajasegaran and others, "DeepCaps: Going Deeper with Capsule
Networks", CVPR 2019, https://arxiv.org/abs/1904.09546, and the authors' code.
"""

import dataclasses
import math
from typing import Any, Literal

import keras
from keras import ops

from .base_layers import CapsuleLayer, batch_normalization, registered
from .convolution import convolution
from .reconstruction import Decoder, mask_capsules
from .routing import RoutingRule, squash
from .tensors import Shape, Tensor
from .windows import positions_of


@registered
class ConvCapsules(CapsuleLayer):
    """Convolutional capsules without routing: a 3x3 convolution and a squash.

    Unlike in `ConvSlimCapsule` each of the I input types has its own kernel.
    The sum of these I convolutions is s. With q = |s|^2, an output capsule is

      v = q / (1 + q) * s / sqrt(q + 1e-7)

    Weights: `kernel` [3, 3, I * a, O * A] with n entries, initially uniform in
    +-sqrt(3 / sqrt(n)), as "glorot_uniform" of Keras 2.2.4 in the code of
    DeepCaps' authors. With smaller initial weights the capsules of deep layers
    vanish, since a squash shrinks short capsules most.

    Args:
      num_capsules: int, O, number of output capsule types.
      num_atoms: int, A, atoms of an output capsule.
      strides: int, the stride in both directions.

    Input shape: [B, H, W, I, a], padded SAME. Output shape: [B, h, w, O, A].
    """

    arguments = (*CapsuleLayer.arguments, "strides")
    kernel_size = 3
    padding = "SAME"

    def __init__(
        self, num_capsules: int, num_atoms: int, strides: int = 1, **kwargs: Any
    ):
        super().__init__(num_capsules, num_atoms, **kwargs)
        self.strides = strides
        self.input_spec = keras.layers.InputSpec(ndim=5)

    def build(self, input_shape: Shape) -> None:
        self.input_spec = keras.layers.InputSpec(shape=(None, *input_shape[1:]))
        *_, types, atoms = input_shape
        shape = (3, 3, types * atoms, self.num_capsules * self.num_atoms)
        limit = math.sqrt(3 / math.sqrt(math.prod(shape)))
        uniform = keras.initializers.RandomUniform(-limit, limit)
        self.kernel = self.add_weight(shape, uniform, name="kernel")

    def call(self, inputs: Tensor) -> Tensor:
        inputs = ops.cast(inputs, self.compute_dtype)
        _, height, width, types, atoms = inputs.shape
        images = ops.reshape(inputs, (-1, height, width, types * atoms))
        s = convolution(images, self.kernel, 2 * (self.strides,), "same")
        _, *shape = self.compute_output_shape(inputs.shape)
        return squash(ops.reshape(s, (-1, *shape)), root_epsilon=1e-7)

    def multiply_adds(self, input_shape: Shape) -> int:
        _, rows, columns, *_ = self.compute_output_shape(input_shape)
        return rows * columns * math.prod(self.kernel.shape)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        window = 3, self.strides, "SAME"
        positions = (positions_of(n, *window) for n in input_shape[1:3])
        return (input_shape[0], *positions, self.num_capsules, self.num_atoms)


# Axes of logits [B, h, w, O, I] and of capsules [B, h, w, O, A].
COUPLING_AXES = {"positions_and_types": (1, 2, 3), "types": (3,)}
SQUASH_AXES = {"atoms": (4,), "map": (1, 2, 4)}


@registered
@dataclasses.dataclass(frozen=True)
class MapRoutingRule(RoutingRule):
    """Rule for `ConvSlimCapsule`: routing over whole maps, as in DeepCaps.

    Attributes:
      couple_over: the output capsules over which the couplings of an input
        type sum to 1. "positions_and_types": all types at all positions (the
        DeepCaps paper); "types": all types at one position.
      squash_over: the vectors that are squashed to a length below 1. "atoms":
        each capsule (the DeepCaps paper); "map": all capsules of a type as one
        vector (the code of DeepCaps).
    """

    couple_over: Literal["positions_and_types", "types"] = "positions_and_types"
    squash_over: Literal["atoms", "map"] = "atoms"

    def couplings(self, logits: Tensor, axis: int | tuple[int, ...]) -> Tensor:
        return super().couplings(logits, COUPLING_AXES[self.couple_over])

    def first_coupling(self, shape: Shape) -> float:
        axes = COUPLING_AXES[self.couple_over]
        return 1.0 / (math.prod(shape[axis] for axis in axes) + self.leaky)

    def squash(self, s: Tensor) -> Tensor:
        axes = SQUASH_AXES[self.squash_over]
        return squash(s, self.squash_constant, self.squash_epsilon, axis=axes)


@registered
class ConvReconstruction(Decoder):
    """The decoder of DeepCaps: one capsule through transposed convolutions.

    The decoder gets the atoms of the labeled capsule but not its class, so an
    atom has one meaning for all classes. A dense layer with relu makes a map of
    16 channels. Its sides are the image's sides, halved until none exceeds 8.
    After batch normalization, 3x3 transposed convolutions follow. The first has
    64 channels. Then one per halving has stride 2, with 32, 16, 8, 8, ...
    channels. The last has the image's channels and, unlike the others, a relu.

    Args and call arguments: see `Decoder`. The image is decoded at 1 / `scale`
    of its height and width. Then each pixel is repeated to fill scale x scale
    pixels. The outputs are at least 0.
    """

    arguments = (*Decoder.arguments, "scale")

    def __init__(
        self, height: int, width: int, depth: int, scale: int = 1, **kwargs: Any
    ):
        super().__init__(height, width, depth, **kwargs)
        self.scale = scale
        height, width = math.ceil(height / scale), math.ceil(width / scale)
        halvings = max(math.ceil(math.log2(max(height, width) / 8)), 0)
        sides = [math.ceil(side / 2**halvings) for side in (height, width)]
        channels = [max(64 >> number, 8) for number in range(halvings + 1)]
        strides = (1, *[2] * halvings, 1)
        dtype = {"dtype": self.dtype_policy}
        options = {"data_format": "channels_last", "padding": "same", **dtype}
        convolutions = [
            keras.layers.Conv2DTranspose(filters, 3, stride, **options)
            for filters, stride in zip((*channels, depth), strides, strict=True)
        ]
        larger = keras.layers.UpSampling2D(scale, "channels_last", **dtype)
        network = [
            keras.layers.Dense(16 * math.prod(sides), "relu", **dtype),
            keras.layers.Reshape((*sides, 16), **dtype),
            batch_normalization(None, momentum=0.8, epsilon=1e-3, **dtype),
            *convolutions,
            keras.layers.ReLU(**dtype),
            *[larger] * (scale > 1),
        ]
        self.network = keras.Sequential(network)
        self.network.trainable = self.trainable

    def build(self, capsules_shape: Shape, labels_shape: Any = None) -> None:
        self.network.build((None, capsules_shape[-1]))

    def call(
        self, capsules: Tensor, labels: Tensor, training: bool | None = None
    ) -> Tensor:
        capsules = ops.cast(capsules, self.compute_dtype)
        capsule = ops.sum(mask_capsules(capsules, labels), axis=1)
        images = self.network(capsule, training=training)
        return images[:, : self.height, : self.width]
