"""The convolutional baseline that the reference compares with."""

import dataclasses
from typing import ClassVar

import keras

import layers
from input_data import features as keys
from layers.utils import reference_initializers
from models.classifier import Classifier
from models.hparams import BaseHParams, loss_type, padding, size
from models.tf1_variables import Tf1Variable, layer, plain

KERNEL_SIZE = 5
CONV_STDDEV = 0.05
POOL_SIZE = 2


@dataclasses.dataclass(frozen=True)
class HParams(BaseHParams):
    """Hyper-parameters of the baseline, with the reference's defaults."""

    # In the reference all models share theirs.
    UNUSED: ClassVar = ("leaky", "num_prime_capsules", "remake", "routing")

    dense_units: int = size(1024, "units of the dense layer")
    first_channels: int = size(512, "channels of the first convolution")
    loss_type: str = loss_type()
    padding: str = padding()
    second_channels: int = size(256, "channels of the second convolution")

    @property
    def channels(self):
        """Of both convolutions."""
        return self.first_channels, self.second_channels


class BaselineModel(Classifier):
    """Two convolutions with max pooling, then two dense layers.

    conv 5x5 to `first_channels` and to `second_channels`, each relu and 2x2 max
    pool with stride 2; dense `dense_units`, relu; dense `num_classes`, linear.

    Call arguments:
      x: dict with `images` [B, H, W, C].

    Returns (from a call) a dict:
      logits: float32 [B, classes].

    Args:
      shape, num_targets, hparams, **kwargs: as of `Classifier`; num_targets
        changes nothing in the network.
    """

    HParams = HParams

    def __init__(self, shape, num_targets, hparams, **kwargs):
        super().__init__(shape, num_targets, hparams, **kwargs)
        self.convolutions = [
            layers.Conv2D(
                channels,
                KERNEL_SIZE,
                padding=hparams.padding.lower(),
                activation="relu",
                data_format="channels_last",
                name=f"conv{number}",
                **reference_initializers(stddev=CONV_STDDEV),
            )
            for number, channels in enumerate(hparams.channels, start=1)
        ]
        self.pool = keras.layers.MaxPooling2D(
            POOL_SIZE,
            strides=POOL_SIZE,
            padding="same",
            data_format="channels_last",
        )
        self.flatten = keras.layers.Flatten(data_format="channels_last")
        self.fc1 = keras.layers.Dense(
            hparams.dense_units,
            activation="relu",
            name="fc1",
            **reference_initializers(),
        )
        self.softmax_layer = keras.layers.Dense(
            shape.num_classes,
            dtype="float32",
            name="softmax_layer",
            **reference_initializers(),
        )

    def activations(self, images):
        """What each layer gives before pooling, by its name."""
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
        pool = (POOL_SIZE, POOL_SIZE, "SAME")
        return ((KERNEL_SIZE, 1, hparams.padding), pool) * len(hparams.channels)

    @classmethod
    def tf1_variables(cls, shape, hparams):
        kernel = (KERNEL_SIZE, KERNEL_SIZE)
        first, second = hparams.channels
        units = hparams.dense_units
        grid = (cls.positions(n, hparams) for n in (shape.height, shape.width))
        pooled = (second, *grid)
        return {
            **layer("conv1", (*kernel, shape.depth), first),
            **layer("conv2", (*kernel, first), second),
            # Rows: channel, row, column there; row, column, channel here.
            "fc1/weights": Tf1Variable((pooled, (units,)), (1, 2, 0, 3)),
            "fc1/biases": plain(units),
            **layer("softmax_layer", (units,), shape.num_classes),
        }
