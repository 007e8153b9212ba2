"""What follows from the graph of a network's layers, of symbolic tensors."""

import fnmatch
import math
import typing

import keras
from keras import ops
from keras.layers import Conv2D, Dense, DepthwiseConv2D

from input_data import keys

# By class of model, attributes that hold layers: NAME or NAME=PATTERN,... of
# the layers' names. Checkpoints depend on them: Keras names layers by their
# first attribute, and numbers weights and the optimizer's state in the order of
# the attributes; without an entry, in the order of the graph.
_ATTRIBUTES = {
    "AttentionModel": "conv1 primary norm routed=first,second,classes logit",
    "BaselineModel": "convolutions=conv* fc1 softmax_layer",
    "CapsuleModel": "conv1 conv_capsule1 capsule2",
    "DeepCapsModel": "conv1 norm cells=cell* classes",
    "EfficientCapsuleModel": "convolutions=conv* normalizations=norm* "
    "primary_capsule class_capsule",
    "HomogeneousCapsuleModel": "convolutions=conv* branches=branch* merge",
    "MatrixCapsuleModel": "conv1 primary=primary_capsules "
    "routed=conv_capsules* classes=class_capsules",
    "PhotoCapsuleModel": "primary classes",
    "PoolingModel": "convolutions=conv* dense probabilities",
    "SelfRoutingModel": "convolutions=conv* primary routed=routed* "
    "classes=class_capsules",
    "SharedCapsuleModel": "convolutions=conv* capsule",
}


class Routing(typing.NamedTuple):
    """Routing of an h x w grid of capsules to the class capsules.

    Couplings are float32 [iterations, B, h, w, types, classes]. If `leaky`, the
    couplings of a capsule may sum to less than 1.
    """

    couplings: typing.Any
    leaky: bool = False


def saved_attributes(model, network):
    """Yields (attribute, layer or list of layers of `network`)."""
    names = [cls.__name__ for cls in type(model).__mro__]
    entries = next(filter(None, map(_ATTRIBUTES.get, names)), "")
    for entry in entries.split():
        attribute, _, pattern = entry.partition("=")
        found = [
            layer
            for part in (pattern or attribute).split(",")
            for layer in network.layers
            if fnmatch.fnmatchcase(layer.name, part)
        ]
        is_list = "*" in pattern or "," in pattern
        for value in [found] if is_list else found:
            yield attribute, value


def image_size(shape):
    """(H, W, C) of an `ImageShape`."""
    return shape.height, shape.width, shape.depth


def functional(model, shape):
    """The network as a Keras functional model with the weights of `model`.

    It uses only Keras and `layers`, so that a saved file can be loaded without
    the rest of this project. It takes images [B, H, W, C], prepared as in
    training, and returns what `model` returns for images without labels.
    """
    if model.tensors:
        inputs = model.tensors.input
        outputs = model.outputs({}, model.tensors.output)
    else:
        inputs = keras.Input(image_size(shape), name=keys.IMAGES)
        outputs = model.call({keys.IMAGES: inputs})
    return keras.Model(inputs, outputs, name="export")


def on_grid(couplings, grid):
    """[iterations, B, ..., classes] -> [iterations, B, *grid, classes]."""
    iterations, *_, classes = couplings.shape
    return ops.reshape(couplings, (iterations, -1, *grid, classes))


def _grid(model):
    """The tensor of the capsules that the routed layer routes, on a grid."""
    if model.grid:
        return model.tensors.output[model.grid]
    layer = model.tensors.get_layer(model.routed_layer)
    return keras.tree.flatten(layer.input)[0]


def routing_of(model, images):
    """The `Routing` of images [B, H, W, C] by `model.routed_layer`."""
    layer = model.tensors.get_layer(model.routed_layer)
    inputs = keras.Model(model.tensors.input, layer.input)(images)
    grid = _grid(model).shape[1:-1]  # rows, columns and perhaps types
    grid = (*grid, 1) if len(grid) == 2 else grid
    couplings = layer.couplings(inputs)
    if model.grid:
        # In a vector of capsules of several grids, those of `grid` come last.
        couplings = couplings[:, :, -math.prod(grid) :]
    return Routing(on_grid(couplings, grid), getattr(layer, "leaky", False))


def receptive_field(model):
    """Triples (size, strides, padding) of the layers from image to grid."""
    tensor, found = _grid(model), []
    while tensor is not model.tensors.input:
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


def multiply_adds(model, shape):
    """Number of multiplications of inputs by weights, for one image.

    A convolution uses each weight once at every position of its output. Capsule
    layers have a method `multiply_adds`. Decoder, biases, normalization and
    routing are not counted. The count for Sabour's network is 201 M; routing
    would add 1 M. Returns None if a layer's number is unknown.
    """
    return _multiply_adds(functional(model, shape), model.decoder)


def _multiply_adds(layer, decoder=None):
    if isinstance(layer, keras.Model):
        parts = (part for part in layer.layers if part is not decoder)
        counts = [_multiply_adds(part) for part in parts if part.weights]
        return None if None in counts else sum(counts)
    input_shape = keras.tree.map_structure(
        lambda tensor: tuple(tensor.shape), layer.input
    )
    if hasattr(layer, "multiply_adds"):
        return layer.multiply_adds(input_shape)
    if isinstance(layer, (Conv2D, Dense, DepthwiseConv2D)):
        positions = layer.compute_output_shape(input_shape)[1:-1]
        return math.prod(positions) * math.prod(layer.kernel.shape)
    is_normalization = all(len(weight.shape) == 1 for weight in layer.weights)
    return 0 if is_normalization else None
