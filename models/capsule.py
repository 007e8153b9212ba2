"""The capsule network of the paper (cited in layers/routing.py), section 4."""

from typing import ClassVar

from layers import networks
from models.classifier import Classifier
from models.hparams import DecoderHParams, arguments_of, loss_type


class CapsuleModel(Classifier):
    """`layers.networks.capsule` and, if `remake` is True, a decoder."""

    @arguments_of(networks.capsule, kernel_size={"at_most": 64})
    class HParams(DecoderHParams):
        PRESETS: ClassVar = {
            # The paper's section 7: the smaller network for SVHN.
            "svhn": {
                "conv_channels": 64,
                "num_prime_capsules": 16,
                "primary_atoms": 6,
                "class_atoms": 8,
            }
        }

        loss_type: str = loss_type()

    routed_layer, grid = "capsule2", "conv_capsule1"

    def __init__(self, shape, num_targets, hparams, **kwargs):
        super().__init__(shape, num_targets, hparams, **kwargs)
        self.add_decoder(shape)
