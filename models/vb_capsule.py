"""The network with variational Bayes routing, see layers/vb_routing.py."""

import dataclasses

from layers.backends import use_full_float32
from layers.networks import vb_capsule
from models.hparams import MatrixHParams, loss_type, padding, weight_decay
from models.matrix_capsule import MatrixCapsuleModel


@dataclasses.dataclass(frozen=True)
class HParams(MatrixHParams):
    """Hyper-parameters with the values of the authors of the routing."""

    decay_rate: float = 1.0
    loss_type: str = loss_type("softmax")
    padding: str = padding(
        "padding of the convolution; authors: VALID for 32x32 images", "SAME"
    )
    weight_decay: float = weight_decay(0.0)


class VBCapsuleModel(MatrixCapsuleModel):
    """Variational Bayes routing, see `layers.networks.vb_capsule`."""

    HParams = HParams

    def network(self, images, num_classes):
        use_full_float32()
        options = self.hparams.options_of(vb_capsule)
        return vb_capsule(images, num_classes, **options)
