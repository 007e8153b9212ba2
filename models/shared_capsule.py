"""Su's capsule network, whose positions share their transformation weights.

The weights do not depend on the image size: a network that is trained on single
digits also finds two digits in one larger image (docs/shared_weights.md).
"""

import dataclasses

from keras import ops

import layers
from input_data import features as keys
from models.classifier import Routing, on_grid
from models.hparams import network, size
from models.pooling import FourConvolutions, SuHParams


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


class SharedCapsuleModel(FourConvolutions):
    """Four convolutions, then class capsules.

    Each position of the last convolution is one input capsule. Its atoms are
    the channels; it is not squashed. Each class has one class capsule of
    `class_atoms` atoms; logits are the lengths of the class capsules.
    """

    HParams = HParams
    has_class_capsules = True

    def __init__(self, shape, num_targets, hparams, **kwargs):
        super().__init__(shape, num_targets, hparams, **kwargs)
        self.capsule = layers.Capsule(
            shape.num_classes,
            hparams.class_atoms,
            num_routing=hparams.routing,
            share_weights=hparams.share_weights,
            use_bias=False,
            kernel_initializer="glorot_uniform",
            rule=layers.RoutingRule(
                logits=hparams.logits,
                compare=hparams.compare,
                squash_constant=hparams.squash_constant,
                squash_epsilon=1e-7,  # Keras' epsilon, in Su's squash
            ),
            name="capsule",
        )

    def activations(self, images):
        activations = self.convolve(images)
        capsules = self.capsule(_flatten(activations["conv4"]))
        return {**activations, "capsule": capsules}

    def routing_of(self, images):
        features = self.convolve(images)["conv4"]
        couplings = self.capsule.couplings(_flatten(features))
        return Routing(on_grid(couplings, (*features.shape[1:3], 1)))

    def call(self, x):
        capsules = self.activations(x[keys.IMAGES])["capsule"]
        return self.capsule_outputs(x, capsules)

    @classmethod
    def takes_any_size(cls, hparams):
        return hparams.share_weights


def _flatten(features):
    """[B, h, w, channels] -> [B, h * w, channels]."""
    _, height, width, channels = features.shape
    return ops.reshape(features, (-1, height * width, channels))
