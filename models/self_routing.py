"""The network of the authors of self-routing, for smallNORB."""

from layers import networks
from models.hparams import BaseHParams, arguments_of, weight_decay
from models.matrix_capsule import PoseModel


class SelfRoutingModel(PoseModel):
    """Self-routing capsules, see `layers.networks.self_routing`."""

    @arguments_of(networks.self_routing)
    class HParams(BaseHParams):
        """The authors' values, but Adam and half as many types of capsules."""

        learning_rate: float = 3e-3
        weight_decay: float = weight_decay(1e-4, "weights")

    decayed_axes = 1
