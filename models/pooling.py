"""J. Su's baseline with pooling, and the base class of his two networks.

Sources: J. Su 2018, https://kexue.fm/archives/4819 and .../archives/5112, and
his code, https://github.com/bojone/Capsule.
"""

import dataclasses
from typing import ClassVar

import keras
from keras import ops

import layers
from input_data import features as keys
from models.classifier import Classifier
from models.hparams import BaseHParams, size

KERNEL_SIZE = 3
POOL_SIZE = 2


@dataclasses.dataclass(frozen=True)
class SuHParams(BaseHParams):
    """Hyper-parameters of both of Su's networks."""

    loss_type: ClassVar = "margin"
    decay_rate: float = 1.0  # no decay
    first_channels: int = size(64, "channels of the first two convolutions")
    second_channels: int = size(128, "channels of the other two convolutions")


class FourConvolutions(Classifier):
    """Four 3x3 convolutions with relu, 2x2 average pooling after the second.

    The first two have `first_channels` channels, the others `second_channels`.
    Keras' defaults initialize them. The loss is the mean over the classes of

      y * max(0, 0.9 - p)^2 + 0.25 * (1 - y) * max(0, p - 0.1)^2

    where y is the label and p the logit of a class: a capsule length or, in
    `PoolingModel`, a probability. The paper has 0.5 in place of 0.25.
    """

    adam_epsilon = 1e-7  # the default of Keras, which Su uses

    def __init__(self, shape, num_targets, hparams, **kwargs):
        super().__init__(shape, num_targets, hparams, **kwargs)
        first, second = hparams.first_channels, hparams.second_channels
        self.convolutions = [
            keras.layers.Conv2D(
                channels, KERNEL_SIZE, activation="relu", name=f"conv{number}"
            )
            for number, channels in enumerate((first, first, second, second), 1)
        ]
        self.pool = keras.layers.AveragePooling2D(POOL_SIZE)

    @classmethod
    def receptive_field(cls, hparams):
        convolution = (KERNEL_SIZE, 1, "VALID")
        pooling = (POOL_SIZE, POOL_SIZE, "VALID")
        return (*[convolution] * 2, pooling, *[convolution] * 2)

    def convolve(self, images):
        """Dict from the name of each convolution to its output."""
        activations = {}
        hidden = images
        for number, convolution in enumerate(self.convolutions):
            if number == 2:
                hidden = self.pool(hidden)
            hidden = activations[convolution.name] = convolution(hidden)
        return activations

    def classification_loss(self, labels, outputs, step):
        logits = outputs[keys.LOGITS]
        return 2.0 * layers.margin_loss(labels, logits, absent_weight=0.25)


@dataclasses.dataclass(frozen=True)
class HParams(SuHParams):
    """Hyper-parameters of the network, with Su's defaults."""

    dense_units: int = size(128, "units of the dense layer")


class PoolingModel(FourConvolutions):
    """Four convolutions, the mean over all positions, two dense layers.

    The output `logits` holds sigmoids: one probability per class.
    """

    HParams = HParams

    def __init__(self, shape, num_targets, hparams, **kwargs):
        super().__init__(shape, num_targets, hparams, **kwargs)
        self.dense = keras.layers.Dense(
            hparams.dense_units, activation="relu", name="dense"
        )
        self.probabilities = keras.layers.Dense(
            shape.num_classes,
            activation="sigmoid",
            dtype="float32",
            name="probabilities",
        )

    def activations(self, images):
        activations = self.convolve(images)
        pooled = ops.mean(activations["conv4"], axis=(1, 2))
        return {**activations, "dense": self.dense(pooled)}

    def call(self, x):
        hidden = self.activations(x[keys.IMAGES])["dense"]
        return {keys.LOGITS: self.probabilities(hidden)}

    @classmethod
    def takes_any_size(cls, hparams):
        return True
