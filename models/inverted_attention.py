"""Matrix capsules with inverted dot-product attention routing.

Source: see layers/inverted_attention.py. The paper's networks are for CIFAR;
this one has the sizes of the small matrix capsules with EM routing.
"""

import dataclasses

import keras
from keras import ops

import layers
from input_data import features as keys
from layers.em_routing import POSE_ENTRIES
from models.classifier import Classifier, Routing, on_grid
from models.hparams import BaseHParams, size


@dataclasses.dataclass(frozen=True)
class HParams(BaseHParams):
    """Hyper-parameters for images like those of MNIST."""

    conv_channels: int = size(64, "channels of the convolution")
    first_types: int = size(16, "types of the first routed capsules")
    primary_types: int = size(8, "types of primary capsules")
    routing: int = size(2, "iterations; a single one is without attention")
    second_types: int = size(16, "types of the second routed capsules")


class AttentionModel(Classifier):
    """A convolution and four layers of capsules.

    conv 3x3 stride 2, relu; primary capsules, linear in the channels and
    normalized; capsules 3x3 stride 2 and 3x3 stride 1; class capsules. Logits
    are the probabilities of the classes, the softmax of a linear map of their
    poses that all classes share; the loss is the cross-entropy.
    """

    HParams = HParams
    has_class_capsules = True
    compile_with_xla = True  # many small operations

    def __init__(self, shape, num_targets, hparams, **kwargs):
        super().__init__(shape, num_targets, hparams, **kwargs)
        # As in PyTorch: uniform in +-1 / sqrt(inputs).
        uniform = keras.initializers.VarianceScaling(1 / 3, "fan_in", "uniform")
        limit = (9 * shape.depth) ** -0.5
        self.conv1 = keras.layers.Conv2D(
            hparams.conv_channels,
            3,
            strides=2,
            padding="same",
            activation="relu",
            data_format="channels_last",
            kernel_initializer=uniform,
            bias_initializer=keras.initializers.RandomUniform(-limit, limit),
            name="conv1",
        )
        self.primary = keras.layers.Dense(
            hparams.primary_types * POSE_ENTRIES,
            use_bias=False,
            kernel_initializer=uniform,
            name="primary",
        )
        self.norm = keras.layers.LayerNormalization(epsilon=1e-5, name="norm")
        self.capsules = layers.InvertedAttentionCapsules(
            (hparams.first_types, hparams.second_types, shape.num_classes),
            (3, 3, None),
            (2, 1, 1),
            hparams.routing,
            name="capsules",
        )
        self.logit = keras.layers.Dense(
            1, kernel_initializer=uniform, name="logit"
        )

    def activations(self, images):
        hidden = self.conv1(images)
        primary = self.primary(hidden)
        shape = (-1, *primary.shape[1:3], self.hparams.primary_types)
        primary = self.norm(ops.reshape(primary, (*shape, POSE_ENTRIES)))
        names = ("first", "second", "classes")
        routed = dict(zip(names, self.capsules(primary), strict=True))
        return {"conv1": hidden, "primary": primary, **routed}

    def routing_of(self, images):
        outputs = self.activations(images)
        couplings = self.capsules.couplings(outputs["primary"])
        return Routing(on_grid(couplings, outputs["second"].shape[1:-1]))

    def call(self, x):
        capsules = self.activations(x[keys.IMAGES])["classes"][:, 0, 0]
        logits = ops.cast(self.logit(capsules)[..., 0], "float32")
        return {keys.LOGITS: ops.softmax(logits), keys.CAPSULES: capsules}

    def classification_loss(self, labels, outputs, step):
        # The bound keeps the loss finite where probabilities underflow.
        probabilities = ops.maximum(outputs[keys.LOGITS], 1e-30)
        return -ops.sum(labels * ops.log(probabilities), axis=-1)

    @classmethod
    def receptive_field(cls, hparams):
        return ((3, 2, "SAME"), (3, 2, "VALID"), (3, 1, "VALID"))
