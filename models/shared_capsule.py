"""Su's capsule network, whose positions share their transformation weights.

The weights do not depend on the image size: a network that is trained on single
digits also finds two digits in one larger image (docs/shared_weights.md).
"""

import dataclasses

from layers.networks import shared_capsule
from models.hparams import network, size
from models.pooling import SuHParams, SuModel


@dataclasses.dataclass(frozen=True)
class HParams(SuHParams):
    """Hyper-parameters with the values of Su's current code."""

    class_atoms: int = size(16, "atoms of a class capsule")
    compare: str = network(
        "direction",
        "what votes are compared with: the direction of their sum (Su's later "
        "routing) or their squashed sum (the paper)",
        choices=("direction", "squashed"),
    )
    logits: str = network(
        "replace",
        "whether an iteration replaces the logits of the couplings, as Su "
        "does, or adds to them, as the paper does",
        choices=("replace", "add"),
    )
    routing: int = size(3, "routing iterations")
    share_weights: bool = network(
        True, "whether positions share weights; if not, image size is fixed"
    )
    squash_constant: float = network(
        0.5, "k of the squashed length n^2 / (k + n^2); 1 in the paper", above=0
    )


class SharedCapsuleModel(SuModel):
    """Su's capsule network, see `layers.networks.shared_capsule`."""

    HParams = HParams
    routed_layer, grid = "capsule", "conv4"

    def network(self, images, num_classes):
        options = self.hparams.options_of(shared_capsule)
        return shared_capsule(images, num_classes, **options)

    @classmethod
    def takes_any_size(cls, hparams):
        return hparams.share_weights
