"""DeepCaps (Rajasegaran and others 2019), see layers/deepcaps.py."""

from typing import Literal

import keras

from ..base_layers import batch_normalization
from ..capsule import Capsule, ConvSlimCapsule
from ..convolution import Conv2D
from ..deepcaps import ConvCapsules, MapRoutingRule
from .base import Tensor, Tensors, network

# Atoms of the capsules of each cell.
CELL_ATOMS = (4, 8, 8, 8)


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
    primary = keras.layers.Concatenate(axis=1)(flat)
    # Glorot-uniform for a kernel of the shape [O, I, A, a].
    scale = 2 * class_atoms / (class_atoms + CELL_ATOMS[-1])
    glorot = keras.initializers.VarianceScaling(scale, "fan_out", "uniform")
    layer = Capsule(
        *(num_classes, class_atoms, num_routing),
        kernel_initializer=glorot,
        name="classes",
    )
    outputs["primary"] = primary
    outputs["classes"] = outputs["capsules"] = layer(primary)
    layer.biases.assign(keras.initializers.GlorotUniform()(layer.biases.shape))
    return outputs
