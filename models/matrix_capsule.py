"""The network of "Matrix capsules with EM routing" ("the paper"), section 5."""

import dataclasses
from typing import ClassVar

import keras

import layers
from common.flags import field
from input_data import features as keys
from layers.backends import use_full_float32
from layers.em_routing import NORMALIZATIONS
from layers.initializers import TruncatedNormal
from layers.losses import CLASSIFICATION_LOSSES
from layers.matrix_capsule import KERNEL_STDDEV
from models.classifier import Classifier, Routing, on_grid
from models.hparams import MatrixHParams, network, padding, size, weight_decay

CONV_SIZE, CONV_STRIDES = 5, 2
CAPSULE_SIZE = 3
# Strides of the two layers of convolutional capsules.
CAPSULE_STRIDES = (2, 1)


@dataclasses.dataclass(frozen=True)
class HParams(MatrixHParams):
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

    class_lambda: float = network(
        0.01, "limit of inverse temperature lambda in class capsules", above=0
    )
    conv_channels: int = size(32, "channels of the convolution (paper: A)")
    conv_lambda: float = network(
        0.01, "limit of lambda in convolutional capsules", above=0
    )
    conv_stddev: float = field(
        0.05, "standard deviation of the convolution's initial kernel", above=0
    )
    coordinates: bool = network(
        True, "add a capsule's position to its votes for classes"
    )
    damping: float = network(
        0.0,
        "weight of the previous iteration's mean in each mean of the routing; "
        "the authors' code has 0.1",
        at_least=0,
        at_most=0.99,
    )
    decay_steps: int = 20_000
    first_types: int = size(32, "types of first routed capsules (paper: C)")
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
    normalise: str = network(
        "parents",
        "over which parents the assignments of a capsule sum to 1: all "
        "(parents), those at one position (types), or those of one type "
        "(positions)",
        choices=NORMALIZATIONS,
    )
    padding: str = padding("padding of the convolution; capsules have VALID")
    primary_types: int = size(32, "types of primary capsules (paper: B)")
    second_types: int = size(32, "types of second routed capsules (paper: D)")
    weight_decay: float = weight_decay(2e-7)


class PoseModel(Classifier):
    """Primary capsules, layers of routed capsules, and class capsules.

    All capsules have poses and activations. The output `logits` holds the
    activations of the class capsules, `capsules` their poses. A subclass sets
    `routed`, a list of layers; `classes`, a layer named "class_capsules"; and,
    unless it overrides `primary_capsules`, the layers `conv1` and `primary`.
    """

    has_class_capsules = True

    def primary_capsules(self, images):
        """Returns (dict of earlier layers' outputs, (poses, activations))."""
        features = self.conv1(images)
        return {"conv1": features}, self.primary(features)

    def activations(self, images):
        outputs, capsules = self.primary_capsules(images)
        outputs["primary_capsules/poses"] = capsules[0]
        outputs["primary_capsules/activations"] = capsules[1]
        for layer in (*self.routed, self.classes):
            capsules = layer(capsules)
            outputs[f"{layer.name}/poses"] = capsules[0]
            outputs[f"{layer.name}/activations"] = capsules[1]
        return outputs

    def routing_of(self, images):
        outputs = self.activations(images)
        children = self.routed[-1].name if self.routed else "primary_capsules"
        activations = outputs[f"{children}/activations"]
        pair = outputs[f"{children}/poses"], activations
        couplings = self.classes.couplings(pair)
        return Routing(on_grid(couplings, activations.shape[1:]))

    def call(self, x, training=None):  # the layers see `training`
        outputs = self.activations(x[keys.IMAGES])
        return {
            keys.LOGITS: outputs["class_capsules/activations"],
            keys.CAPSULES: outputs["class_capsules/poses"],
        }

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
    """A convolution, primary capsules and three layers with EM routing.

    The convolution is 5x5 with stride 2 and relu. There are `primary_types`
    types of primary capsules. Two layers of 3x3 capsules without padding
    follow: `first_types` types with stride 2, then `second_types` types with
    stride 1. The last layer has one capsule per class. Poses have 16 entries.
    """

    HParams = HParams
    # Routing is many small operations: XLA halves the time of a step.
    compile_with_xla = True
    # Primary, convolutional and class capsules.
    layer_classes = (
        layers.PrimaryMatrixCapsules,
        layers.ConvMatrixCapsules,
        layers.ClassMatrixCapsules,
    )

    def __init__(self, shape, num_targets, hparams, **kwargs):
        super().__init__(shape, num_targets, hparams, **kwargs)
        # Variances are small differences of sums of squares.
        use_full_float32()
        self.conv1 = self.convolution(hparams)
        primary, convolutional, classes = self.layer_classes
        of_convolutional, of_classes = self.layer_options(hparams)
        self.primary = primary(hparams.primary_types, name="primary_capsules")
        types = (hparams.first_types, hparams.second_types)
        self.routed = [
            convolutional(
                types[i],
                CAPSULE_SIZE,
                CAPSULE_STRIDES[i],
                name=f"conv_capsules{i + 1}",
                **of_convolutional,
            )
            for i in range(2)
        ]
        self.classes = classes(
            shape.num_classes, name="class_capsules", **of_classes
        )

    def convolution(self, hparams):
        """The layer before the primary capsules."""
        return keras.layers.Conv2D(
            hparams.conv_channels,
            CONV_SIZE,
            strides=CONV_STRIDES,
            padding=hparams.padding.lower(),
            activation="relu",
            kernel_initializer=TruncatedNormal(stddev=hparams.conv_stddev),
            name="conv1",
        )

    def layer_options(self, hparams):
        """Two dicts of arguments: for convolutional and for class capsules."""
        names = ("min_variance", "damping", "kernel_stddev")
        common = {name: getattr(hparams, name) for name in names}
        common["num_routing"] = hparams.routing
        convolutional = {"final_lambda": hparams.conv_lambda, **common}
        classes = {"final_lambda": hparams.class_lambda, **common}
        convolutional["normalise"] = hparams.normalise
        classes["coordinates"] = hparams.coordinates
        return convolutional, classes

    def classification_loss(self, labels, outputs, step):
        if self.hparams.loss_type != "spread":
            return super().classification_loss(labels, outputs, step)
        schedule = self.hparams.margin_steps, self.hparams.margin_schedule
        margin = layers.spread_margin(step, *schedule)
        return layers.spread_loss(labels, outputs[keys.LOGITS], margin)

    @classmethod
    def receptive_field(cls, hparams):
        return (
            (CONV_SIZE, CONV_STRIDES, hparams.padding),
            *((CAPSULE_SIZE, strides, "VALID") for strides in CAPSULE_STRIDES),
        )
