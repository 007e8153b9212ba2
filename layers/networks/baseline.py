"""The convolutional baseline of Sabour et al. 2017 (see routing.py)."""

from typing import Literal

import keras

from ..base_layers import reference_initializers
from ..fast_convolution import Conv2D
from .base import Tensor, Tensors, network


@network("cross-entropy", activation="softmax")
def baseline(
    images: Tensor,
    num_classes: int,
    *,
    first_channels: int = 512,
    second_channels: int = 256,
    dense_units: int = 1024,
    padding: Literal["VALID", "SAME"] = "VALID",
) -> Tensors:
    """Two 5x5 convolutions with relu and max pooling, two dense layers.

    Args:
      first_channels: int, channels of the first convolution.
      second_channels: int, channels of the second convolution.
      dense_units: int, units of the dense layer.
      padding: str, padding of the convolutions.
    """
    outputs, x = {}, images
    for number, channels in enumerate((first_channels, second_channels), 1):
        x = outputs[f"conv{number}"] = Conv2D(
            channels,
            kernel_size=5,
            padding=padding.lower(),
            activation="relu",
            name=f"conv{number}",
            **reference_initializers(stddev=0.05),
        )(x)
        pool = f"pool{number}"
        x = keras.layers.MaxPooling2D(2, padding="same", name=pool)(x)
    x = keras.layers.Flatten()(x)
    x = outputs["fc1"] = keras.layers.Dense(
        dense_units, "relu", name="fc1", **reference_initializers()
    )(x)
    outputs["logits"] = keras.layers.Dense(
        num_classes,
        dtype="float32",
        name="softmax_layer",
        **reference_initializers(),
    )(x)
    return outputs
