"""Matrix capsules with inverted dot-product attention routing."""

from keras import ops

from layers import networks
from layers.inverted_attention import route_together
from models.classifier import Classifier
from models.graph import Routing, on_grid
from models.hparams import BaseHParams, arguments_of


class AttentionModel(Classifier):
    """`layers.networks.inverted_attention`; cross-entropy is the loss."""

    @arguments_of(networks.inverted_attention)
    class HParams(BaseHParams):
        """Hyper-parameters for images like those of MNIST."""

    compile_with_xla = True  # many small operations
    routed_layer = "classes"

    def routing_of(self, images):
        # The couplings of an iteration need the poses of the one before.
        primary = self.activations(images)["primary"]
        history = route_together(self.routed, primary, self.hparams.routing)
        layer, children = self.routed[-1], history[0][-2]
        couplings = [layer.couplings(children)]
        couplings += [layer.couplings(*poses[-2:]) for poses in history[:-1]]
        return Routing(on_grid(ops.stack(couplings), children.shape[1:-1]))
