"""Arithmetic of one forward pass, computed from a network's layers.

The rule: products of inputs with weights, for one image, without the decoder.
A convolution uses each weight once at every position of its output, a dense
layer once, a capsule layer once for each vote that the weight has part in (its
method `multiply_adds` says so). Not counted are biases, normalisation,
activations, and what routing does with the votes: of Sabour's network 1 M
beside 201 M.
"""

import math

import keras

from evaluation.export import functional

_NOT_COUNTED = (
    keras.layers.BatchNormalization,
    keras.layers.GroupNormalization,
    keras.layers.LayerNormalization,
)


class UnknownLayerError(Exception):
    """A layer has weights of which the rule says nothing."""


def multiply_adds(model, shape):
    """Multiply-adds of a network for one image.

    Args:
      model: `classifier.Classifier`, built.
      shape: `features.ImageShape`.

    Returns:
      int.

    Raises:
      UnknownLayerError: for one with weights of which the rule says nothing.
    """
    return sum(
        _of_layer(
            layer,
            keras.tree.map_structure(lambda t: tuple(t.shape), layer.input),
        )
        for layer in functional(model, shape).layers
        if layer.weights and layer is not model.decoder
    )


def _of_layer(layer, input_shape):
    if hasattr(layer, "multiply_adds"):
        return layer.multiply_adds(input_shape)
    if isinstance(layer, _NOT_COUNTED):
        return 0
    if isinstance(layer, keras.layers.Conv2D):
        positions = layer.compute_output_shape(input_shape)[1:-1]
    elif isinstance(layer, keras.layers.Dense):
        positions = input_shape[1:-1]
    else:
        raise UnknownLayerError(
            f"{type(layer).__name__} has weights, but no method multiply_adds "
            "that says how often they are used"
        )
    return math.prod(positions) * math.prod(layer.kernel.shape)
