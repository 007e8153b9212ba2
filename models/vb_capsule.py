"""The network with variational Bayes routing, see layers/vb_routing.py."""

from layers import networks
from models.hparams import BaseHParams, arguments_of, loss_type, weight_decay
from models.matrix_capsule import MatrixCapsuleModel


class VBCapsuleModel(MatrixCapsuleModel):
    """Variational Bayes routing, see `layers.networks.vb_capsule`."""

    @arguments_of(networks.vb_capsule)
    class HParams(BaseHParams):
        decay_rate: float = 1.0
        loss_type: str = loss_type("softmax")
        weight_decay: float = weight_decay(0.0)
