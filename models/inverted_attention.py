"""Matrix capsules with inverted dot-product attention routing.

Source: see layers/inverted_attention.py. The source's networks are for CIFAR.
This one has as many channels and types as `matrix_capsule` with preset=small.
"""

import dataclasses

import keras
from keras import ops

import layers
from input_data import features as keys
from layers.inverted_attention import route_together
from layers.matrix_votes import POSE_ENTRIES
from models.classifier import Classifier, Routing, on_grid
from models.hparams import MatrixHParams, size


@dataclasses.dataclass(frozen=True)
class HParams(MatrixHParams):
    """Hyper-parameters for images like those of MNIST."""

    routing: int = size(2, "routing iterations; the first has equal couplings")


class AttentionModel(Classifier):
    """A convolution and four layers of capsules.

    The convolution is 3x3 with stride 2 and relu. Primary capsules are a linear
    map of its channels, layer-normalized. Two layers of 3x3 capsules follow,
    with strides 2 and 1. A linear map shared by all class capsules gives one
    score for each; `logits` are the softmax of the scores. Loss: cross-entropy.
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
            2,
            "same",
            activation="relu",
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
        capsules = layers.InvertedAttentionCapsules
        self.routed = [
            capsules(hparams.first_types, 3, 2, name="first"),
            capsules(hparams.second_types, 3, 1, name="second"),
            capsules(shape.num_classes, name="classes"),
        ]
        self.logit = keras.layers.Dense(
            1, kernel_initializer=uniform, name="logit"
        )

    def activations(self, images):
        hidden = self.conv1(images)
        types = self.hparams.primary_types
        shape = (-1, *hidden.shape[1:3], types, POSE_ENTRIES)
        primary = self.norm(ops.reshape(self.primary(hidden), shape))
        *_, poses = route_together(self.routed, primary, self.hparams.routing)
        names = ("primary", "first", "second", "classes")
        return {"conv1": hidden, **dict(zip(names, poses, strict=True))}

    def routing_of(self, images):
        primary = self.activations(images)["primary"]
        history = route_together(self.routed, primary, self.hparams.routing)
        layer, children = self.routed[-1], history[0][-2]
        couplings = [layer.couplings(children)]
        couplings += [layer.couplings(*poses[-2:]) for poses in history[:-1]]
        return Routing(on_grid(ops.stack(couplings), children.shape[1:-1]))

    def call(self, x):
        capsules = self.activations(x[keys.IMAGES])["classes"]
        logits = ops.cast(self.logit(capsules)[..., 0], "float32")
        return {keys.LOGITS: ops.softmax(logits), keys.CAPSULES: capsules}

    @classmethod
    def receptive_field(cls, hparams):
        return ((3, 2, "SAME"), (3, 2, "VALID"), (3, 1, "VALID"))
