"""The convolutional baseline of the reference."""

from typing import ClassVar

from layers import networks
from models.classifier import Classifier
from models.hparams import BaseHParams, arguments_of, loss_type


class BaselineModel(Classifier):
    """The baseline, see `layers.networks.baseline`."""

    @arguments_of(networks.baseline)
    class HParams(BaseHParams):
        UNUSED: ClassVar = ("leaky", "num_prime_capsules", "remake", "routing")

        loss_type: str = loss_type()
