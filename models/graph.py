"""What follows from the graph of a network's layers, of symbolic tensors."""

import math
import typing

import keras
from keras import ops


class Routing(typing.NamedTuple):
    """Routing of an h x w grid of capsules to the class capsules."""

    couplings: typing.Any  # float32 [iterations, B, h, w, types, classes]
    leaky: bool = False  # couplings of a capsule may sum to less than 1


def on_grid(couplings, grid):
    """[iterations, B, ..., classes] -> [iterations, B, *grid, classes]."""
    iterations, *_, classes = couplings.shape
    return ops.reshape(couplings, (iterations, -1, *grid, classes))


def _grid(model):
    """The tensor of the capsules that the routed layer routes, on a grid."""
    if model.row.grid:
        return model.network.output[model.row.grid]
    layer = model.network.get_layer(model.row.routed_layer)
    return keras.tree.flatten(layer.input)[0]


def routing_of(model, images):
    """The `Routing` of images [B, H, W, C] by the routed layer."""
    layer = model.network.get_layer(model.row.routed_layer)
    inputs = keras.Model(model.network.input, layer.input)(images)
    grid = _grid(model).shape[1:-1]  # types; rows, columns and perhaps types
    if len(grid) < 3:
        grid = (*grid, 1) if len(grid) == 2 else (1, 1, *grid)
    couplings = layer.couplings(inputs)
    if model.row.grid:
        # In a vector of capsules of several grids, those of `grid` come last.
        couplings = couplings[:, :, -math.prod(grid) :]
    return Routing(on_grid(couplings, grid), getattr(layer, "leaky", False))


def receptive_field(model):
    """Triples (size, strides, padding) of the layers from image to grid."""
    tensor, found = _grid(model), []
    if len(tensor.shape) == 3:  # capsules without a position
        return ()
    while tensor is not model.network.input:
        maker = tensor._keras_history.operation
        is_block = isinstance(maker, keras.Sequential)
        for layer in maker.layers[::-1] if is_block else [maker]:
            size = getattr(layer, "kernel_size", getattr(layer, "pool_size", 0))
            if isinstance(layer, keras.layers.ZeroPadding2D):
                # The kernels have the centers of smaller ones.
                size, *rest = found.pop()
                found.append((size - 2 * layer.padding[0][0], *rest))
            elif size:
                size, strides = (
                    keras.tree.flatten(n)[0] for n in (size, layer.strides)
                )
                found.append((size, strides, layer.padding.upper()))
        tensor = keras.tree.flatten(maker.input)[0]
    return tuple(found[::-1])
