"""The routing of the network with inverted dot-product attention."""

from keras import ops

from layers.networks.inverted_attention import route_together
from models.classifier import Classifier
from models.graph import Routing, on_grid


class InvertedAttentionModel(Classifier):
    """A class of its own, because all routed layers iterate together."""

    def routing_of(self, images):
        primary = self.activations(images)["primary"]
        names = "first", "second", "classes"
        routed = [self.network.get_layer(name) for name in names]
        history = route_together(routed, primary, self.hparams.routing)
        layer, children = routed[-1], history[0][-2]
        couplings = [layer.couplings(children)]
        couplings += [layer.couplings(*poses[-2:]) for poses in history[:-1]]
        return Routing(on_grid(ops.stack(couplings), children.shape[1:-1]))
