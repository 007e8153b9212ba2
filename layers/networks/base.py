"""What all networks share: building them from a shape, and blocks of layers."""

import functools
from collections.abc import Callable
from typing import Any

import keras

from ..base_layers import batch_normalization
from ..capsule import Length
from ..tensors import Tensor as Tensor

Tensors = dict[str, Tensor]

_ARGUMENTS = """Args:
      images: tensor [B, H, W, C], pixels in [0, 1], or a shape (H, W, C).
      num_classes: int, number of classes.
      dtype: dtype or policy of the layers, as for `keras.layers.Layer`.
"""


def network(activation: str = "linear") -> Callable[..., Callable[..., Any]]:
    """Decorates a function from images to tensors: it also takes a shape.

    For a shape (H, W, C) instead of images, the function returns a
    `keras.Model` from images to `activation` of the tensor "logits". Another
    new argument is `dtype`. By default logits are the lengths of "capsules".
    """

    def decorate(tensors_of):
        @functools.wraps(tensors_of)
        def network_of(images, num_classes, dtype=None, **options):
            if isinstance(images, (tuple, list)):
                inputs = keras.Input(images, name="images")
                tensors = network_of(inputs, num_classes, dtype, **options)
                output = keras.layers.Activation(
                    activation, dtype="float32", name="predictions"
                )(tensors["logits"])
                return keras.Model(inputs, output, name=tensors_of.__name__)
            policy = keras.config.dtype_policy()
            keras.config.set_dtype_policy(keras.dtype_policies.get(dtype))
            try:
                tensors = tensors_of(images, num_classes, **options)
                if "logits" not in tensors:
                    lengths = Length(name="lengths")
                    tensors["logits"] = lengths(tensors["capsules"])
                return tensors
            finally:
                keras.config.set_dtype_policy(policy)

        network_of.__doc__ = tensors_of.__doc__.replace("Args:\n", _ARGUMENTS)
        return network_of

    return decorate


def convolution_block(
    channels,
    size,
    strides,
    name,
    padding="VALID",
    relu=True,
    kernel_initializer="he_uniform",
    **options,
):
    """Convolution (no biases), then batch normalization, then relu if `relu`.

    `options` are those of `batch_normalization`.
    """
    convolution = keras.layers.Conv2D(
        channels,
        size,
        strides,
        padding.lower(),
        use_bias=False,
        kernel_initializer=kernel_initializer,
        name="convolution",
    )
    relus = [keras.layers.ReLU()] * relu
    block = [convolution, batch_normalization("norm", **options), *relus]
    return keras.Sequential(block, name=name)
