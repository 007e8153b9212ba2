"""The network of "Matrix capsules with EM routing" ("the paper"), section 5."""

from typing import ClassVar

import keras

import layers
from common.flags import field
from input_data import keys
from layers import networks
from layers.backends import use_full_float32
from layers.losses import CLASSIFICATION_LOSSES
from layers.matrix_capsule import KERNEL_STDDEV
from models.classifier import Classifier
from models.hparams import BaseHParams, arguments_of, network, weight_decay


@arguments_of(networks.matrix_capsule)
class HParams(BaseHParams):
    """Hyper-parameters with the paper's defaults."""

    PRESETS: ClassVar = {
        # The paper's table 1: 68 thousand weights with five classes.
        "small": {
            "conv_channels": 64,
            "primary_types": 8,
            "first_types": 16,
            "second_types": 16,
        }
    }

    conv_stddev: float = field(
        0.05, "standard deviation of the convolution's initial kernel", above=0
    )
    damping: float = network(
        0.0,
        "weight of the previous iteration's mean in each mean of the routing; "
        "the authors' code has 0.1",
        at_least=0,
        at_most=0.99,
    )
    decay_steps: int = 20_000
    kernel_stddev: float = field(
        KERNEL_STDDEV, "standard deviation of initial vote weights", above=0
    )
    learning_rate: float = 0.003
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
    min_variance: float = network(
        5e-4, "added to variances in routing", at_least=1e-6
    )
    weight_decay: float = weight_decay(2e-7)


class PoseModel(Classifier):
    """Base class of networks of capsules with poses and activations.

    The output `logits` holds the activations of the class capsules, `capsules`
    their poses.
    """

    routed_layer = "class_capsules"

    def create_weights(self, shape):
        super().create_weights(shape)
        if self.hparams.weight_decay:
            decay = keras.regularizers.L2(0.5 * self.hparams.weight_decay)
            for weight in filter(self.decays, self.trainable_weights):
                weight.regularizer = decay

    def decays(self, weight):
        """Whether `weight_decay` applies: to weights with 2 or more axes."""
        return len(weight.shape) > 1


class MatrixCapsuleModel(PoseModel):
    """Capsules with EM routing, see `layers.networks.matrix_capsule`."""

    HParams = HParams
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
