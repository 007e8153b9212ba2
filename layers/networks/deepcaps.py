"""DeepCaps: convolutional capsules, routing over maps, and the network.

Source: J. Rajasegaran and others, "DeepCaps: Going Deeper with Capsule
Networks", CVPR 2019, https://arxiv.org/abs/1904.09546, and the authors' code.
"""

import dataclasses
import math
from typing import Any, Literal

import keras
from keras import ops

from ..base_layers import (
    CapsuleLayer,
    Shape,
    Tensor,
    batch_normalization,
    positions_of,
    registered,
)
from ..capsule import Capsule, ConvSlimCapsule
from ..fast_convolution import Conv2D, convolution
from ..reconstruction import Decoder, mask_capsules
from ..routing import RoutingRule, squash
from .base import Tensors, network


@registered
class ConvCapsules(CapsuleLayer):
    """Convolutional capsules without routing: a 3x3 convolution and a squash.

    Unlike in `ConvSlimCapsule` each of the I input types has its own kernel.
    The sum of these I convolutions is s. With q = |s|^2, an output capsule is

      v = q / (1 + q) * s / sqrt(q + 1e-7)

    Weights: `kernel` [3, 3, I * a, O * A] with n entries, initially uniform in
    +-sqrt(3 / sqrt(n)), as "glorot_uniform" of the authors' Keras 2.2.4. With
    smaller weights the capsules of deep layers vanish.

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
        type sum to 1. "positions_and_types": all (the DeepCaps paper); "types":
        all types at one position.
      squash_over: the vectors that are squashed. "atoms": each capsule (the
        DeepCaps paper); "map": all capsules of a type as one vector (the code).
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


# Atoms of the capsules of each cell.
CELL_ATOMS = (4, 8, 8, 8)


@registered
class ConvReconstruction(Decoder):
    """The decoder of DeepCaps: one capsule through transposed convolutions.

    The decoder gets the atoms of the labeled capsule but not its class, so an
    atom has one meaning for all classes. A dense layer with relu makes a map of
    16 channels. Its sides are the image's sides, halved until none exceeds 8.
    After batch normalization, 3x3 transposed convolutions follow: one with 64
    channels; one per halving with stride 2 and 32, 16, 8, 8, ... channels; and
    one with the image's channels and, unlike the others, a relu.

    Args and call arguments: see `Decoder`. A decoded pixel fills scale x scale
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


@network("`margin_loss`", "0.001 * 0.5 ** (step // 4690)", 1e-7)
def deepcaps(
    images: Tensor,
    num_classes: int,
    *,
    types: int = 32,
    class_atoms: int = 32,
    num_routing: int = 3,
    couple_over: Literal[
        "positions_and_types", "types"
    ] = "positions_and_types",
    squash_over: Literal["atoms", "map"] = "atoms",
) -> Tensors:
    """A convolution, four cells of convolutional capsules, class capsules.

    A 3x3 convolution, relu and batch normalization give 4 * `types` channels,
    each a capsule type of one atom. A cell has four capsule layers: `halve` has
    stride 2 and computes x; the cell's output is second(first(x)) + skip(x).
    Of all these layers only `skip` of cell 4 routes. The capsules of cells 3
    and 4 are routed to class capsules, whose lengths are the logits.

    Args:
      types: int, types of capsules in the cells.
      class_atoms: int, atoms of a class capsule.
      num_routing: int, routing iterations of cell 4 and of the classes.
      couple_over: str, output capsules over which the couplings of cell 4 sum
        to 1.
      squash_over: str, vectors that cell 4 squashes: each capsule, or each
        type's whole map.
    """
    rule = MapRoutingRule(couple_over=couple_over, squash_over=squash_over)
    x = Conv2D(4 * types, 3, padding="same", activation="relu", name="conv1")(
        images
    )
    x = batch_normalization("norm", momentum=0.99, epsilon=1e-3)(x)
    outputs = {"conv1": x}
    x = keras.layers.Reshape((*x.shape[1:], 1))(x)
    for number, atoms in enumerate(CELL_ATOMS, 1):
        cell = f"cell{number}"
        x = ConvCapsules(types, atoms, strides=2, name=f"{cell}_halve")(x)
        deep = ConvCapsules(types, atoms, name=f"{cell}_first")(x)
        deep = ConvCapsules(types, atoms, name=f"{cell}_second")(deep)
        if number < 4:
            skip = ConvCapsules(types, atoms, name=f"{cell}_skip")
        else:
            skip = ConvSlimCapsule(
                types,
                atoms,
                kernel_size=3,
                padding="SAME",
                num_routing=num_routing,
                kernel_initializer="he_normal",
                rule=rule,
                name=f"{cell}_skip",
            )
        x = outputs[cell] = deep + skip(x)
    # Keras 3.10 needs a layer of its own for each grid.
    flat = [
        keras.layers.Reshape((-1, CELL_ATOMS[-1]))(outputs[cell])
        for cell in ("cell4", "cell3")
    ]
    primary = outputs["primary"] = keras.layers.Concatenate(axis=1)(flat)
    # Glorot-uniform for a kernel of the shape [O, I, A, a].
    scale = 2 * class_atoms / (class_atoms + CELL_ATOMS[-1])
    glorot = keras.initializers.VarianceScaling(scale, "fan_out", "uniform")
    layer = Capsule(
        *(num_classes, class_atoms, num_routing),
        kernel_initializer=glorot,
        name="classes",
    )
    outputs["classes"] = outputs["capsules"] = layer(primary)
    layer.biases.assign(keras.initializers.GlorotUniform()(layer.biases.shape))
    return outputs
