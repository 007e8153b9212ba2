"""The network of the authors of self-routing, for smallNORB."""

import dataclasses

from layers.networks import self_routing
from models.hparams import BaseHParams, size, weight_decay
from models.matrix_capsule import PoseModel


@dataclasses.dataclass(frozen=True)
class HParams(BaseHParams):
    """The authors' values, but with Adam and half as many types of capsules."""

    atoms: int = size(16, "atoms of a pose")
    channels: int = size(16, "channels of the first convolution")
    depth: int = size(1, "layers of capsules after the primary capsules")
    learning_rate: float = 3e-3
    types: int = size(16, "types of capsules; 32 in the authors' code")
    weight_decay: float = weight_decay(1e-4, "weights")


class SelfRoutingModel(PoseModel):
    """Self-routing capsules, see `layers.networks.self_routing`."""

    HParams = HParams

    def network(self, images, num_classes):
        options = self.hparams.options_of(self_routing)
        return self_routing(images, num_classes, **options)

    def decays(self, weight):
        return True
