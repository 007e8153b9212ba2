"""Matrix capsules with variational Bayes routing.

Source: F. Ribeiro, G. Leontidis, S. Kollias, "Capsule routing via variational
Bayes", AAAI 2020, https://arxiv.org/abs/1905.11455, and the authors' code.
"""

import dataclasses

import keras

import layers
from common.flags import field
from layers.utils import is_mirrored
from models.hparams import BaseHParams, loss_type, padding, size
from models.matrix_capsule import (
    CAPSULE_SIZE,
    CAPSULE_STRIDES,
    CONV_SIZE,
    CONV_STRIDES,
    MatrixCapsuleModel,
)


@dataclasses.dataclass(frozen=True)
class HParams(BaseHParams):
    """Hyper-parameters with the authors' values."""

    conv_channels: int = size(64, "channels of the convolution")
    decay_rate: float = field(1.0, "factor for each `decay_steps`", above=0)
    first_types: int = size(16, "types of the first routed capsules")
    loss_type: str = loss_type("softmax")
    padding: str = padding(
        "padding of the convolution; the authors' is VALID, for 32x32", "SAME"
    )
    primary_types: int = size(8, "types of primary capsules")
    routing: int = size(3, "iterations of variational Bayes routing")
    second_types: int = size(16, "types of the second routed capsules")
    weight_decay: float = field(
        0.0, "weight of half the sum of squared kernels", at_least=0
    )


class VBCapsuleModel(MatrixCapsuleModel):
    """`MatrixCapsuleModel` with variational Bayes routing.

    Batch normalization follows the convolution and, by type, every layer of
    capsules. There are no biases and no betas.
    """

    HParams = HParams

    def _add_layers(self, shape, hparams):
        self.conv1 = keras.layers.Conv2D(
            hparams.conv_channels,
            CONV_SIZE,
            CONV_STRIDES,
            hparams.padding.lower(),
            data_format="channels_last",
            use_bias=False,
            kernel_initializer="he_uniform",
            name="conv1",
        )
        self.norm1 = keras.layers.BatchNormalization(
            momentum=0.9, epsilon=1e-5, synchronized=is_mirrored(), name="norm1"
        )
        self.primary = layers.PrimaryVBCapsules(
            hparams.primary_types, name="primary_capsules"
        )
        types = (hparams.first_types, hparams.second_types)
        self.routed = [
            layers.ConvVBCapsules(
                types[i],
                CAPSULE_SIZE,
                CAPSULE_STRIDES[i],
                num_routing=hparams.routing,
                name=f"conv_capsules{i + 1}",
            )
            for i in range(2)
        ]
        self.classes = layers.ClassVBCapsules(
            shape.num_classes, hparams.routing, name="class_capsules"
        )

    def _features(self, images):
        return keras.ops.relu(self.norm1(self.conv1(images)))

    def call(self, x, training=None):
        return super().call(x)  # the layers see `training`
