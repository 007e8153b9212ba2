"""The capsule network of the paper (cited in layers/routing.py), section 4."""

import dataclasses
from typing import ClassVar

import layers
from input_data import features as keys
from layers.capsule_stack import KERNEL_SIZE, PRIMARY_STRIDES
from models.classifier import Classifier, Routing, on_grid
from models.hparams import DecoderHParams, loss_type, network, padding, size


@dataclasses.dataclass(frozen=True)
class HParams(DecoderHParams):
    """Hyper-parameters of the capsule model, with the reference's defaults."""

    PRESETS: ClassVar = {
        # The paper's section 7: the smaller network for SVHN.
        "svhn": {
            "conv_channels": 64,
            "num_prime_capsules": 16,
            "primary_atoms": 6,
            "class_atoms": 8,
        }
    }

    class_atoms: int = size(16, "atoms of a class capsule")
    class_bias: bool = network(True, "whether class capsules have biases")
    conv_channels: int = size(256, "channels of the convolution")
    kernel_size: int = size(KERNEL_SIZE, "side of both convolutions' kernels")
    leaky: bool = network(
        False, "leaky softmax: an input capsule may be routed nowhere"
    )
    loss_type: str = loss_type()
    num_prime_capsules: int = size(32, "types of primary capsules")
    padding: str = padding()
    primary_atoms: int = size(8, "atoms of a primary capsule")
    routing: int = size(3, "routing iterations of the class capsules")


class CapsuleModel(Classifier):
    """Convolution, primary capsules, class capsules and a decoder.

    The layers are those of `layers.CapsuleStack`; logits are the lengths of
    the class capsules. There is a decoder if `remake` is True.
    """

    HParams = HParams
    has_class_capsules = True

    def __init__(self, shape, num_targets, hparams, **kwargs):
        super().__init__(shape, num_targets, hparams, **kwargs)
        names = ("class_atoms", "class_bias", "conv_channels", "kernel_size")
        names += ("leaky", "num_prime_capsules", "padding", "primary_atoms")
        options = {name: getattr(hparams, name) for name in names}
        self._stack = layers.CapsuleStack(
            shape.num_classes, num_routing=hparams.routing, **options
        )
        # Keras tracks layers that are attributes of the model.
        self.conv1 = self._stack.conv1
        self.conv_capsule1 = self._stack.conv_capsule1
        self.capsule2 = self._stack.capsule2
        self.add_decoder(shape)

    def activations(self, images):
        return self._stack.activations(images)

    def routing_of(self, images):
        primary = self.activations(images)["conv_capsule1"]
        couplings = self.capsule2.couplings(self._stack.flatten(primary))
        by_position = on_grid(couplings, primary.shape[1:-1])
        return Routing(by_position, self.hparams.leaky)

    def call(self, x):
        capsules = self.activations(x[keys.IMAGES])["capsule2"]
        return self.capsule_outputs(x, capsules)

    @classmethod
    def receptive_field(cls, hparams):
        return tuple(
            (hparams.kernel_size, strides, hparams.padding)
            for strides in (1, PRIMARY_STRIDES)
        )
