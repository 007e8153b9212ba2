"""What the networks of J. Su's experiment share: four convolutions, the loss.

Sources: J. Su, https://kexue.fm/archives/4819 and 5112 (2018), and his code,
https://github.com/bojone/Capsule ("the author" in the modules of both).
"""

import dataclasses
import itertools

import keras

import layers
from input_data import features as keys
from models.classifier import Classifier
from models.hparams import BaseHParams, size
from old.fields import field

KERNEL_SIZE = 3
POOL_SIZE = 2
# Weight of the absent classes; the paper and the reference have 0.5.
ABSENT_WEIGHT = 0.25


@dataclasses.dataclass(frozen=True)
class HParams(BaseHParams):
    """What both networks have beside the hyper-parameters of all models."""

    decay_rate: float = field(
        1.0,
        "factor of schedule=exponential for `decay_steps`; 1 is no decay, as "
        "the author has it",
        above=0,
    )
    first_channels: int = size(64, "channels of the first two convolutions")
    second_channels: int = size(128, "channels of the other two")


class FourConvolutions(Classifier):
    """Four convolutions 3x3, relu, with 2x2 average pooling in the middle.

    The first two have `first_channels` channels, the others `second_channels`;
    initial weights are those of Keras. The loss is

      y * max(0, 0.9 - p)^2 + 0.25 * (1 - y) * max(0, p - 0.1)^2

    for the lengths or probabilities p, the mean over the classes.

    Args:
      shape, num_targets, hparams, **kwargs: as of `Classifier`.
    """

    HParams = HParams
    # The default of Keras, as the author has it.
    adam_epsilon = 1e-7

    def __init__(self, shape, num_targets, hparams, **kwargs):
        super().__init__(shape, num_targets, hparams, **kwargs)
        first, second = hparams.first_channels, hparams.second_channels
        self.convolutions = [
            keras.layers.Conv2D(
                channels,
                KERNEL_SIZE,
                activation="relu",
                data_format="channels_last",
                name=f"conv{number}",
            )
            for number, channels in enumerate((first, first, second, second), 1)
        ]
        self.pool = keras.layers.AveragePooling2D(
            POOL_SIZE, data_format="channels_last"
        )

    @classmethod
    def receptive_field(cls, hparams):
        convolution = (KERNEL_SIZE, 1, "VALID")
        pooling = (POOL_SIZE, POOL_SIZE, "VALID")
        return (*[convolution] * 2, pooling, *[convolution] * 2)

    def convolve(self, images):
        """What each convolution gives, by its name, the last at last."""
        activations = {}
        hidden = images
        for number, convolution in enumerate(self.convolutions):
            if number == 2:
                hidden = self.pool(hidden)
            hidden = activations[convolution.name] = convolution(hidden)
        return activations

    def classification_loss(self, labels, outputs, step):
        return 2.0 * layers.margin_loss(
            labels, outputs[keys.LOGITS], absent_weight=ABSENT_WEIGHT
        )

    @classmethod
    def num_weights(cls, shape, hparams):
        channels = (
            shape.depth,
            hparams.first_channels,
            hparams.first_channels,
            hparams.second_channels,
            hparams.second_channels,
        )
        return sum(
            KERNEL_SIZE**2 * before * after + after
            for before, after in itertools.pairwise(channels)
        )
