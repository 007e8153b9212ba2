"""Counts the multiply-adds of one forward pass from the layers of a network.

They are the products of inputs with weights for one image, without the
decoder. A convolution uses each weight once at every position of its output, a
dense layer once, and a capsule layer once for each vote that the weight
contributes to (see its method `multiply_adds`). Biases, normalization,
activations and the routing of the votes are not counted: in Sabour's network
the routing is 1 M beside 201 M.
"""

import math

import keras

from input_data import features as keys

_NOT_COUNTED = (
    keras.layers.BatchNormalization,
    keras.layers.GroupNormalization,
    keras.layers.LayerNormalization,
)


def multiply_adds(model, shape):
    """Multiply-adds of a network for one image.

    Args:
      model: `classifier.Classifier`, built.
      shape: `features.ImageShape`.

    Returns:
      int, or None if the rule does not cover a layer that has weights.
    """
    images = keras.Input((shape.height, shape.width, shape.depth))
    network = keras.Model(images, model.call({keys.IMAGES: images}))
    counts = [
        _of_layer(layer)
        for layer in network.layers
        if layer.weights and layer is not model.decoder
    ]
    return None if None in counts else sum(counts)


def _of_layer(layer):
    input_shape = keras.tree.map_structure(
        lambda tensor: tuple(tensor.shape), layer.input
    )
    if hasattr(layer, "multiply_adds"):
        return layer.multiply_adds(input_shape)
    if isinstance(layer, _NOT_COUNTED):
        return 0
    if isinstance(layer, keras.layers.Conv2D):
        positions = layer.compute_output_shape(input_shape)[1:-1]
    elif isinstance(layer, keras.layers.Dense):
        positions = input_shape[1:-1]
    else:
        return None
    return math.prod(positions) * math.prod(layer.kernel.shape)
