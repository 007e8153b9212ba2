"""J. Su's baseline with pooling, and the convolutions of his two networks.

Sources: J. Su 2018, https://kexue.fm/archives/4819 and .../archives/5112, and
his code, https://github.com/bojone/Capsule.
"""

import keras
from keras import ops

from .base import Tensor, Tensors, network


def four_convolutions(images, first_channels, second_channels):
    """Four 3x3 convolutions with relu, 2x2 average pooling after the second.

    The first two have `first_channels` channels, the others `second_channels`.
    Returns a dict from the name of each convolution to its output.
    """
    outputs, x = {}, images
    for number, channels in enumerate(
        (first_channels, first_channels, second_channels, second_channels), 1
    ):
        if number == 3:
            x = keras.layers.AveragePooling2D(2)(x)
        x = outputs[f"conv{number}"] = keras.layers.Conv2D(
            channels, 3, activation="relu", name=f"conv{number}"
        )(x)
    return outputs


@network("`margin_loss` with absent_weight=0.25", "0.001", 1e-7)
def pooling(
    images: Tensor,
    num_classes: int,
    *,
    first_channels: int = 64,
    second_channels: int = 128,
    dense_units: int = 128,
) -> Tensors:
    """Four convolutions, the mean over all positions, two dense layers.

    "logits" are sigmoids: one probability per class.

    Args:
      first_channels: int, channels of the first two convolutions.
      second_channels: int, channels of the other two convolutions.
      dense_units: int, units of the dense layer.
    """
    outputs = four_convolutions(images, first_channels, second_channels)
    x = ops.mean(outputs["conv4"], axis=(1, 2))
    x = outputs["dense"] = keras.layers.Dense(
        dense_units, activation="relu", name="dense"
    )(x)
    outputs["logits"] = keras.layers.Dense(
        num_classes, activation="sigmoid", dtype="float32", name="probabilities"
    )(x)
    return outputs
