"""The network of Hinton, Sabour and Frosst 2018, section 5.

Source: "Matrix capsules with EM routing",
https://openreview.net/forum?id=HJWLfGWRb.
"""

import dataclasses
from typing import ClassVar

import keras

import layers
from common.flags import field
from input_data import features as keys
from layers.em_routing import NORMALISATIONS
from layers.losses import CLASSIFICATION_LOSSES
from layers.matrix_capsule import KERNEL_STDDEV
from layers.utils import TruncatedNormal, use_full_float32
from models.classifier import Classifier, Routing, on_grid
from models.hparams import BaseHParams, padding, size

CONV_SIZE, CONV_STRIDES = 5, 2
CAPSULE_SIZE = 3
# Strides of the two layers of convolutional capsules.
CAPSULE_STRIDES = (2, 1)


@dataclasses.dataclass(frozen=True)
class HParams(BaseHParams):
    """Hyper-parameters with the paper's defaults."""

    PRESETS: ClassVar = {
        # The paper's table 1: 68 thousand weights with five classes.
        "small": {
            "conv_channels": 64,
            "primary_types": 8,
            "first_types": 16,
            "second_types": 16,
        },
    }

    class_lambda: float = field(
        0.01, "final lambda of the class capsules", above=0, network=True
    )
    conv_channels: int = size(32, "A, channels of the convolution")
    conv_lambda: float = field(
        0.01, "final lambda of convolutional capsules", above=0, network=True
    )
    conv_stddev: float = field(
        0.05, "standard deviation of the convolution's initial kernel", above=0
    )
    coordinates: bool = field(
        True, "add a capsule's position to its votes for classes", network=True
    )
    damping: float = field(
        0.0,
        "weight of the previous mean in each mean of the routing; the authors' "
        "code has 0.1",
        at_least=0,
        at_most=0.99,
        network=True,
    )
    decay_steps: int = field(20_000, "steps for one decay factor", at_least=1)
    first_types: int = size(32, "C, types of the first routed capsules")
    kernel_stddev: float = field(
        KERNEL_STDDEV, "standard deviation of initial transformations", above=0
    )
    learning_rate: float = field(0.003, "learning rate at step 0", above=0)
    loss_type: str = field(
        "spread",
        "classification loss",
        choices=("spread", *CLASSIFICATION_LOSSES),
    )
    margin_schedule: str = field(
        "linear",
        "growth of the spread loss's margin: linear from 0.2 to 0.9, or "
        "sigmoid, as in the authors' code, from 0.21 to 0.99",
        choices=tuple(layers.MARGIN_SCHEDULES),
    )
    margin_steps: int = field(
        20_000, "steps until the full margin; authors' code: 700000", at_least=1
    )
    min_variance: float = field(
        5e-4, "added to each variance", at_least=1e-6, network=True
    )
    normalise: str = field(
        "parents",
        "the parents over which the assignments of a capsule sum to 1: "
        "parents: all of them; types: those at the same position; positions: "
        "those of the same type",
        choices=NORMALISATIONS,
        network=True,
    )
    padding: str = padding(
        "padding of the convolution; that of the capsules is VALID"
    )
    primary_types: int = size(32, "B, types of primary capsules")
    routing: int = size(3, "iterations of EM routing")
    second_types: int = size(32, "D, types of the second routed capsules")
    weight_decay: float = field(
        2e-7, "weight of half the sum of squared kernels", at_least=0
    )


class MatrixCapsuleModel(Classifier):
    """A convolution and four layers of matrix capsules with EM routing.

    conv 5x5 stride 2 to `conv_channels` channels, relu; `primary_types` primary
    capsules at each position; capsules 3x3 stride 2 of `first_types` and 3x3
    stride 1 of `second_types`, both VALID; one capsule for each class. Logits
    are the activations of the class capsules, `capsules` their 16 pose entries.
    """

    HParams = HParams
    has_class_capsules = True
    # Routing is many small operations: XLA halves the time of a step.
    compile_with_xla = True

    def __init__(self, shape, num_targets, hparams, **kwargs):
        super().__init__(shape, num_targets, hparams, **kwargs)
        # Variances are small differences of sums of squares.
        use_full_float32()
        self._add_layers(shape, hparams)

    def _add_layers(self, shape, hparams):
        self.conv1 = keras.layers.Conv2D(
            hparams.conv_channels,
            CONV_SIZE,
            strides=CONV_STRIDES,
            padding=hparams.padding.lower(),
            activation="relu",
            data_format="channels_last",
            kernel_initializer=TruncatedNormal(stddev=hparams.conv_stddev),
            name="conv1",
        )
        self.primary = layers.PrimaryMatrixCapsules(
            hparams.primary_types, name="primary_capsules"
        )
        common = {
            "num_routing": hparams.routing,
            "min_variance": hparams.min_variance,
            "damping": hparams.damping,
            "kernel_stddev": hparams.kernel_stddev,
        }
        types = (hparams.first_types, hparams.second_types)
        self.routed = [
            layers.ConvMatrixCapsules(
                types[i],
                CAPSULE_SIZE,
                CAPSULE_STRIDES[i],
                final_lambda=hparams.conv_lambda,
                normalise=hparams.normalise,
                name=f"conv_capsules{i + 1}",
                **common,
            )
            for i in range(2)
        ]
        self.classes = layers.ClassMatrixCapsules(
            shape.num_classes,
            final_lambda=hparams.class_lambda,
            coordinates=hparams.coordinates,
            name="class_capsules",
            **common,
        )

    def _features(self, images):
        return self.conv1(images)

    def activations(self, images):
        capsules = self._features(images)
        outputs = {"conv1": capsules}
        for layer in (self.primary, *self.routed, self.classes):
            capsules = layer(capsules)
            outputs[f"{layer.name}/poses"] = capsules[0]
            outputs[f"{layer.name}/activations"] = capsules[1]
        return outputs

    def routing_of(self, images):
        outputs = self.activations(images)
        poses = outputs["conv_capsules2/poses"]
        activations = outputs["conv_capsules2/activations"]
        couplings = self.classes.assignments((poses, activations))
        return Routing(on_grid(couplings, poses.shape[1:-1]))

    def call(self, x):
        outputs = self.activations(x[keys.IMAGES])
        return {
            keys.LOGITS: outputs["class_capsules/activations"],
            keys.CAPSULES: outputs["class_capsules/poses"],
        }

    def classification_loss(self, labels, outputs, step):
        if self.hparams.loss_type != "spread":
            return super().classification_loss(labels, outputs, step)
        margin = layers.spread_margin(
            step, self.hparams.margin_steps, self.hparams.margin_schedule
        )
        return layers.spread_loss(labels, outputs[keys.LOGITS], margin)

    def create_weights(self, shape):
        super().create_weights(shape)
        if self.hparams.weight_decay:
            decay = keras.regularizers.L2(0.5 * self.hparams.weight_decay)
            for weight in self.trainable_weights:
                if len(weight.shape) > 1:  # neither biases nor betas
                    weight.regularizer = decay

    @classmethod
    def receptive_field(cls, hparams):
        return (
            (CONV_SIZE, CONV_STRIDES, hparams.padding),
            *((CAPSULE_SIZE, strides, "VALID") for strides in CAPSULE_STRIDES),
        )
