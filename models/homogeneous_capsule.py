"""The network of Byerly, Kalganova and Dear, see layers/homogeneous.py."""

import dataclasses
from typing import ClassVar

from common.flags import field
from layers.homogeneous import ORDERS
from layers.networks import homogeneous_capsule
from layers.networks.homogeneous_capsule import MERGES
from models.classifier import Classifier
from models.hparams import BaseHParams, loss_type, network, size


@dataclasses.dataclass(frozen=True)
class HParams(BaseHParams):
    """Hyper-parameters with the authors' values, except `ema` and `momentum`.

    preset=long, for 10,000 or more steps, has the authors' values of these two.
    """

    PRESETS: ClassVar = {"long": {"ema": 0.999, "momentum": 0.9997}}

    branches: int = size(
        3, "largest number of branches; every third convolution can have one"
    )
    convolutions: int = size(9, "number of convolutions")
    decay_rate: float = 0.98
    decay_steps: int = 500  # an epoch of 60,000 images in batches of 120
    ema: float = 0.99
    first_channels: int = size(32, "channels of the first convolution")
    loss_type: str = loss_type("softmax")
    merge: str = network(
        "ones",
        "initial weights of the branches; equal: ones that are never trained",
        choices=tuple(MERGES),
    )
    momentum: float = field(
        0.99, "momentum of all batch normalizations", at_least=0, below=1
    )
    more_channels: int = size(16, "channels that each convolution adds")
    order: str = network(
        "xyz",
        "input capsules of a branch: one per position (xyz) or channel (zxy)",
        choices=tuple(ORDERS),
    )


class HomogeneousCapsuleModel(Classifier):
    """`layers.networks.homogeneous_capsule`; it has no decoder."""

    HParams = HParams
    has_lengths = False
    adam_epsilon = 1e-7  # the default of Keras, which the authors use
    schedule_options: ClassVar = {"smallest": 1e-7, "staircase": True}

    def network(self, images, num_classes):
        options = self.hparams.options_of(homogeneous_capsule)
        return homogeneous_capsule(images, num_classes, **options)
