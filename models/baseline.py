"""The convolutional baseline of the reference."""

import dataclasses
from typing import ClassVar

import keras

import layers
from input_data import features as keys
from layers.initializers import reference_initializers
from models.classifier import Classifier
from models.hparams import BaseHParams, loss_type, padding, size

KERNEL_SIZE = 5
POOL_SIZE = 2


@dataclasses.dataclass(frozen=True)
class HParams(BaseHParams):
    """Hyper-parameters of the baseline, with the reference's defaults."""

    UNUSED: ClassVar = ("leaky", "num_prime_capsules", "remake", "routing")

    dense_units: int = size(1024, "units of the dense layer")
    first_channels: int = size(512, "channels of the first convolution")
    loss_type: str = loss_type()
    padding: str = padding()
    second_channels: int = size(256, "channels of the second convolution")


class BaselineModel(Classifier):
    """Two 5x5 convolutions with relu and max pooling, two dense layers."""

    HParams = HParams

    def __init__(self, shape, num_targets, hparams, **kwargs):
        super().__init__(shape, num_targets, hparams, **kwargs)
        both_channels = hparams.first_channels, hparams.second_channels
        self.convolutions = [
            layers.Conv2D(
                channels,
                KERNEL_SIZE,
                padding=hparams.padding.lower(),
                activation="relu",
                name=f"conv{number}",
                **reference_initializers(stddev=0.05),
            )
            for number, channels in enumerate(both_channels, 1)
        ]
        self.pool = keras.layers.MaxPooling2D(POOL_SIZE, padding="same")
        self.flatten = keras.layers.Flatten()
        self.fc1 = keras.layers.Dense(
            hparams.dense_units, "relu", name="fc1", **reference_initializers()
        )
        self.softmax_layer = keras.layers.Dense(
            shape.num_classes,
            dtype="float32",
            name="softmax_layer",
            **reference_initializers(),
        )

    def activations(self, images):
        activations = {}
        hidden = images
        for convolution in self.convolutions:
            activations[convolution.name] = convolution(hidden)
            hidden = self.pool(activations[convolution.name])
        activations["fc1"] = self.fc1(self.flatten(hidden))
        return activations

    def call(self, x):
        hidden = self.activations(x[keys.IMAGES])["fc1"]
        return {keys.LOGITS: self.softmax_layer(hidden)}

    @classmethod
    def receptive_field(cls, hparams):
        convolution = (KERNEL_SIZE, 1, hparams.padding)
        pooling = (POOL_SIZE, POOL_SIZE, "SAME")
        return (convolution, pooling) * 2
