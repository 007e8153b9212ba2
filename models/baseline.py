"""The convolutional baseline of the reference."""

import dataclasses
from typing import ClassVar

from layers.networks import baseline
from models.classifier import Classifier
from models.hparams import BaseHParams, loss_type, padding, size


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
    """The baseline, see `layers.networks.baseline`."""

    HParams = HParams

    def network(self, images, num_classes):
        return baseline(
            images, num_classes, **self.hparams.options_of(baseline)
        )
