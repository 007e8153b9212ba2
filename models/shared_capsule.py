"""Su's capsule network, whose positions share their transformation weights.

The weights do not depend on the image size: a network that is trained on single
digits also finds two digits in one larger image (docs/shared_weights.md).
"""

from typing import ClassVar

from layers import networks
from models.hparams import BaseHParams, arguments_of
from models.pooling import SuModel


class SharedCapsuleModel(SuModel):
    """Su's capsule network, see `layers.networks.shared_capsule`."""

    @arguments_of(networks.shared_capsule)
    class HParams(BaseHParams):
        loss_type: ClassVar = "margin"
        decay_rate: float = 1.0  # no decay

    routed_layer, grid = "capsule", "conv4"
