"""What all networks share: building them from a shape, and blocks of layers."""

import functools
from collections.abc import Callable
from contextlib import nullcontext
from contextvars import ContextVar
from typing import Any

import keras

from ..base_layers import Tensor as Tensor
from ..base_layers import batch_normalization
from ..capsule import Length

Tensors = dict[str, Tensor]

_TRAINING = """Loss: {}. Adam: epsilon {}, learning rate {}.

    Args:
      images: tensor [B, H, W, C], pixels in [0, 1], or a shape (H, W, C).
      num_classes: int, number of classes.
      dtype: dtype or policy of the layers, as for `keras.layers.Layer`.
      name: str, name of the model and prefix of its layers' names.
"""
_RATE = "0.001 * 0.96 ** (step / 2000)"
_unnamed: ContextVar[int] = ContextVar("calls on tensors without a name")


def network(
    loss="`margin_loss`", rate=_RATE, epsilon=1e-8, activation="linear"
) -> Callable[..., Callable[..., Any]]:
    """Decorates a function from images to tensors: it also takes a shape.

    For a shape (H, W, C), the function returns a `keras.Model` from images to
    `activation` of "logits", by default the lengths of "capsules". Other new
    arguments are `dtype` and `name`. The docstring shows how to train it.
    """

    def decorate(tensors_of):
        title = tensors_of.__name__

        @functools.wraps(tensors_of)
        def network_of(images, num_classes, dtype=None, name=None, **options):
            if isinstance(images, (tuple, list)):
                prefix = f"{name}_" if name else ""
                inputs = keras.Input(images, name=f"{prefix}images")
                options |= {"dtype": dtype, "name": name or ""}
                tensors = network_of(inputs, num_classes, **options)
                output = keras.layers.Activation(
                    activation, dtype="float32", name=f"{prefix}predictions"
                )(tensors["logits"])
                number = keras.backend.get_uid(title) - 1
                name = name or f"{title}_{number}".removesuffix("_0")
                return keras.Model(inputs, output, name=name)
            if name is None:
                _unnamed.set((number := _unnamed.get(0)) + 1)
                name = f"{title}_{number}" if number else ""
            policy = keras.config.dtype_policy()
            keras.config.set_dtype_policy(keras.dtype_policies.get(dtype))
            try:
                with keras.name_scope(name) if name else nullcontext():
                    tensors = tensors_of(images, num_classes, **options)
                    if "logits" not in tensors:
                        lengths = Length(name="lengths")
                        tensors["logits"] = lengths(tensors["capsules"])
            finally:
                keras.config.set_dtype_policy(policy)
            if name:
                for layer in keras.Model(images, tensors).layers[1:]:
                    layer.name = f"{name}_{layer.name}"
            return tensors

        text = _TRAINING.format(loss, epsilon, rate)
        network_of.__doc__ = tensors_of.__doc__.replace("Args:\n", text)
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
