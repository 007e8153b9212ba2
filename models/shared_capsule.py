"""Su's capsule network, whose positions share their transformation weights.

The weights do not depend on the image size: a network that is trained on single
digits also finds two digits in one larger image (docs/shared_weights.md).
"""

from layers import networks
from models.hparams import arguments_of
from models.pooling import SuHParams, SuModel


@arguments_of(networks.shared_capsule)
class HParams(SuHParams):
    """Hyper-parameters with the values of Su's current code."""


class SharedCapsuleModel(SuModel):
    """Su's capsule network, see `layers.networks.shared_capsule`."""

    HParams = HParams
    routed_layer, grid = "capsule", "conv4"

    @classmethod
    def takes_any_size(cls, hparams):
        return hparams.share_weights
