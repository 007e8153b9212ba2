"""DeepCaps (Rajasegaran and others 2019), see layers/deepcaps.py."""

import dataclasses
import math
from typing import ClassVar

import keras
from keras import ops

import layers
from common.flags import field
from input_data import features as keys
from layers.base_layers import batch_normalization
from layers.deepcaps import COUPLING_AXES, SQUASH_AXES
from models.classifier import Classifier, Routing, on_grid
from models.hparams import DecoderHParams, network, size

# Atoms of the capsules of each cell.
CELL_ATOMS = (4, 8, 8, 8)
# Weight of absent classes, m+ and m- of the margin loss.
MARGINS, HARD_MARGINS = (0.5, 0.9, 0.1), (0.8, 0.95, 0.05)


@dataclasses.dataclass(frozen=True)
class HParams(DecoderHParams):
    """The authors' hyper-parameters, but `decay_steps` for batches of 128."""

    loss_type: ClassVar = "margin"
    class_atoms: int = size(32, "atoms of a class capsule")
    couple_over: str = network(
        "positions_and_types",
        "output capsules over which the couplings of cell 4 sum to 1",
        choices=tuple(COUPLING_AXES),
    )
    decay_rate: float = 0.5
    decay_steps: int = 4690  # 10 epochs of MNIST
    hard_margins: bool = field(
        False,
        "for a second training: margins 0.95, 0.05; absent classes' weight 0.8",
    )
    remake_weight: float = field(
        0.4, "weight of the mean squared pixel error", at_least=0
    )
    routing: int = size(3, "routing iterations of cell 4 and of the classes")
    squash_over: str = network(
        "atoms",
        "vectors that cell 4 squashes: each capsule, or each type's whole map",
        choices=tuple(SQUASH_AXES),
    )
    types: int = size(32, "types of capsules in the cells")


class DeepCapsModel(Classifier):
    """A convolution, four cells of convolutional capsules, class capsules.

    A 3x3 convolution, relu and batch normalization give 4 * `types` channels,
    each a capsule type of one atom. A cell has four capsule layers: `halve` has
    stride 2 and computes x; the cell's output is second(first(x)) + skip(x).
    Of all these layers only `skip` of cell 4 routes. The capsules of cells 3
    and 4 are routed to class capsules, whose lengths are the logits.
    """

    HParams = HParams
    has_class_capsules = True
    adam_epsilon = 1e-7  # the default of Keras, which the authors use
    schedule_options: ClassVar = {"staircase": True}

    def __init__(self, shape, num_targets, hparams, **kwargs):
        super().__init__(shape, num_targets, hparams, **kwargs)
        types, class_atoms = hparams.types, hparams.class_atoms
        self.conv1 = layers.Conv2D(
            4 * types, 3, padding="same", activation="relu", name="conv1"
        )
        self.norm = batch_normalization("norm", momentum=0.99, epsilon=1e-3)
        roles = {"halve": 2, "first": 1, "second": 1, "skip": 1}
        cells = [
            layers.ConvCapsules(
                types, atoms, strides=strides, name=f"cell{number}_{role}"
            )
            for number, atoms in enumerate(CELL_ATOMS, 1)
            for role, strides in roles.items()
        ]
        cells[-1] = layers.ConvSlimCapsule(
            types,
            CELL_ATOMS[-1],
            kernel_size=3,
            padding="SAME",
            num_routing=hparams.routing,
            kernel_initializer="he_normal",
            rule=layers.MapRoutingRule(
                couple_over=hparams.couple_over, squash_over=hparams.squash_over
            ),
            name=cells[-1].name,
        )
        self.cells = cells
        # Glorot-uniform for a kernel of the shape [O, I, A, a].
        scale = 2 * class_atoms / (class_atoms + CELL_ATOMS[-1])
        glorot = keras.initializers.VarianceScaling(scale, "fan_out", "uniform")
        sizes = shape.num_classes, class_atoms, hparams.routing
        options = {"kernel_initializer": glorot, "name": "classes"}
        self.classes = layers.Capsule(*sizes, **options)
        self.add_decoder(shape, layers.ConvReconstruction)

    def create_weights(self, shape):
        super().create_weights(shape)
        biases = self.classes.biases
        biases.assign(keras.initializers.GlorotUniform()(biases.shape))

    def activations(self, images):
        outputs = {"conv1": self.norm(self.conv1(images))}
        x = outputs["conv1"][..., None]
        for number in range(len(CELL_ATOMS)):
            halve, first, second, skip = self.cells[4 * number :][:4]
            x = halve(x)
            x = outputs[f"cell{number + 1}"] = second(first(x)) + skip(x)
        last = [
            ops.reshape(x, (-1, math.prod(x.shape[1:-1]), CELL_ATOMS[-1]))
            for x in (outputs["cell4"], outputs["cell3"])
        ]
        outputs["primary"] = ops.concatenate(last, axis=1)
        outputs["classes"] = self.classes(outputs["primary"])
        return outputs

    def routing_of(self, images):
        """The `Routing` of cell 3 to the classes; cell 4 has a smaller map."""
        outputs = self.activations(images)
        couplings = self.classes.couplings(outputs["primary"])
        grid = outputs["cell3"].shape[1:-1]  # rows, columns, types
        return Routing(on_grid(couplings[:, :, -math.prod(grid) :], grid))

    def call(self, x, training=None):  # the layers see `training`
        activations = self.activations(x[keys.IMAGES])
        return self.capsule_outputs(x, activations["classes"])

    def classification_loss(self, labels, outputs, step):
        """The sum over classes, of which `margin_loss` is half the mean."""
        margins = HARD_MARGINS if self.hparams.hard_margins else MARGINS
        loss = layers.margin_loss(labels, outputs[keys.LOGITS], *margins)
        return 2.0 * labels.shape[-1] * loss

    def reconstruction_loss(self, images, reconstructions):
        """`remake_weight` * mean squared error."""
        loss = super().reconstruction_loss(images, reconstructions)
        return loss / math.prod(images.shape[1:])

    @classmethod
    def receptive_field(cls, hparams):
        cell = ((3, 2, "SAME"), (3, 1, "SAME"), (3, 1, "SAME"))
        return ((3, 1, "SAME"), *cell, *cell, *cell)
