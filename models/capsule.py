"""The capsule network of the paper (cited in layers/routing.py), section 4."""

import dataclasses
from typing import ClassVar

from layers.networks import capsule
from models.classifier import Classifier
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
    kernel_size: int = size(9, "side of both convolutions' kernels")
    leaky: bool = network(
        False, "leaky softmax: an input capsule may be routed nowhere"
    )
    loss_type: str = loss_type()
    num_prime_capsules: int = size(32, "types of primary capsules")
    padding: str = padding()
    primary_atoms: int = size(8, "atoms of a primary capsule")
    routing: int = size(3, "routing iterations of the class capsules")


class CapsuleModel(Classifier):
    """`layers.networks.capsule` and, if `remake` is True, a decoder."""

    HParams = HParams
    routed_layer, grid = "capsule2", "conv_capsule1"

    def __init__(self, shape, num_targets, hparams, **kwargs):
        super().__init__(shape, num_targets, hparams, **kwargs)
        self.add_decoder(shape)

    def network(self, images, num_classes):
        return capsule(images, num_classes, **self.hparams.options_of(capsule))
