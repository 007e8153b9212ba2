"""The network of "Matrix capsules with EM routing" ("the paper"), section 5."""

from typing import ClassVar

import keras

import layers
from common.flags import field
from input_data import keys
from layers.backends import use_full_float32
from layers.losses import CLASSIFICATION_LOSSES
from models.classifier import Classifier
from models.hparams import BaseHParams, arguments_of, loss_type, weight_decay


class PoseModel(Classifier):
    """Base class of networks of capsules with poses and activations.

    The output `logits` holds the activations of the class capsules, `capsules`
    their poses.
    """

    routed_layer = "class_capsules"
    decayed_axes = 2  # the fewest of weights to which `weight_decay` applies

    def create_weights(self, shape):
        super().create_weights(shape)
        if self.hparams.weight_decay:
            decay = keras.regularizers.L2(0.5 * self.hparams.weight_decay)
            for weight in self.trainable_weights:
                if len(weight.shape) >= self.decayed_axes:
                    weight.regularizer = decay


class MatrixCapsuleModel(PoseModel):
    """Capsules with EM routing, see `layers.networks.matrix_capsule`."""

    @arguments_of(
        layers.networks.matrix_capsule,
        conv_stddev={"defines_network": False},
        damping={"above": None, "at_least": 0, "at_most": 0.99},
        kernel_stddev={"defines_network": False},
        min_variance={"above": None, "at_least": 1e-6},
    )
    class HParams(BaseHParams):
        PRESETS: ClassVar = {
            # The paper's table 1: 68 thousand weights with five classes.
            "small": {
                "conv_channels": 64,
                "primary_types": 8,
                "first_types": 16,
                "second_types": 16,
            }
        }

        decay_steps: int = 20_000
        learning_rate: float = 0.003
        loss_type: str = loss_type("spread", "spread", *CLASSIFICATION_LOSSES)
        margin_schedule: str = field(
            "linear",
            "growth of the spread loss's margin: linear from 0.2 to 0.9, or "
            "sigmoid, as in the authors' code, from 0.21 to 0.99",
            choices=tuple(layers.MARGIN_SCHEDULES),
        )
        margin_steps: int = field(
            20_000,
            "steps until the full margin; authors' code: 700000",
            at_least=1,
        )
        weight_decay: float = weight_decay(2e-7)

    # Routing is many small operations: XLA halves the time of a step.
    compile_with_xla = True

    def network(self, images, num_classes):
        use_full_float32()  # variances are small differences of sums
        return super().network(images, num_classes)

    def classification_loss(self, labels, outputs, step):
        if self.hparams.loss_type != "spread":
            return super().classification_loss(labels, outputs, step)
        schedule = self.hparams.margin_steps, self.hparams.margin_schedule
        margin = layers.spread_margin(step, *schedule)
        return layers.spread_loss(labels, outputs[keys.LOGITS], margin)
