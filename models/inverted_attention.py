"""Matrix capsules with inverted dot-product attention routing.

Source: see layers/inverted_attention.py. The source's networks are for CIFAR.
This one has as many channels and types as `matrix_capsule` with preset=small.
"""

import dataclasses

from keras import ops

from layers.inverted_attention import route_together
from layers.networks import inverted_attention
from models.classifier import Classifier
from models.graph import Routing, on_grid
from models.hparams import MatrixHParams, size


@dataclasses.dataclass(frozen=True)
class HParams(MatrixHParams):
    """Hyper-parameters for images like those of MNIST."""

    routing: int = size(2, "routing iterations; the first has equal couplings")


class AttentionModel(Classifier):
    """`layers.networks.inverted_attention`; cross-entropy is the loss."""

    HParams = HParams
    compile_with_xla = True  # many small operations
    routed_layer = "classes"

    def network(self, images, num_classes):
        options = self.hparams.options_of(inverted_attention)
        return inverted_attention(images, num_classes, **options)

    def routing_of(self, images):
        # The couplings of an iteration need the poses of the one before.
        primary = self.activations(images)["primary"]
        history = route_together(self.routed, primary, self.hparams.routing)
        layer, children = self.routed[-1], history[0][-2]
        couplings = [layer.couplings(children)]
        couplings += [layer.couplings(*poses[-2:]) for poses in history[:-1]]
        return Routing(on_grid(ops.stack(couplings), children.shape[1:-1]))
