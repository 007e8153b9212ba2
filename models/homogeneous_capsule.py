"""The network of Byerly, Kalganova and Dear, see layers/homogeneous.py."""

from typing import ClassVar

from common.flags import field
from layers import networks
from models.classifier import Classifier
from models.hparams import BaseHParams, arguments_of, loss_type


class HomogeneousCapsuleModel(Classifier):
    """`layers.networks.homogeneous_capsule`; it has no decoder."""

    @arguments_of(networks.homogeneous_capsule)
    class HParams(BaseHParams):
        """The authors' values, except `ema` and `momentum`.

        preset=long, for 10,000 or more steps, has their values of these two.
        """

        PRESETS: ClassVar = {"long": {"ema": 0.999, "momentum": 0.9997}}

        decay_rate: float = 0.98
        decay_steps: int = 500  # an epoch of 60,000 images in batches of 120
        ema: float = 0.99
        loss_type: str = loss_type("softmax")
        momentum: float = field(
            0.99, "momentum of all batch normalizations", at_least=0, below=1
        )

    has_lengths = False
    adam_epsilon = 1e-7  # the default of Keras, which the authors use
    schedule_options: ClassVar = {"smallest": 1e-7, "staircase": True}
