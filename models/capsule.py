"""The capsule network of the paper's section 4."""

import dataclasses
import math
from typing import ClassVar

import layers
from input_data import features as keys
from layers.network import KERNEL_SIZE, PRIMARY_STRIDES
from layers.reconstruction import HIDDEN_UNITS
from models.classifier import Classifier, Routing, on_grid
from models.hparams import (
    MOST_ITERATIONS,
    BaseHParams,
    loss_type,
    padding,
    remake,
    remake_weight,
    size,
)
from models.tf1_variables import Tf1Variable, layer, plain
from old.fields import field


@dataclasses.dataclass(frozen=True)
class HParams(BaseHParams):
    """Hyper-parameters of the capsule model, with the reference's defaults."""

    PRESETS: ClassVar = {
        # The paper's section 7: the smaller network for SVHN.
        "svhn": {
            "conv_channels": 64,
            "num_prime_capsules": 16,
            "primary_atoms": 6,
            "class_atoms": 8,
        },
    }

    class_atoms: int = size(16, "atoms of a class capsule")
    conv_channels: int = size(256, "channels of the convolution")
    leaky: bool = field(
        False,
        "leaky softmax in the routing: an input capsule may be routed nowhere",
        network=True,
    )
    loss_type: str = loss_type()
    num_prime_capsules: int = size(32, "types of primary capsules")
    padding: str = padding()
    primary_atoms: int = size(8, "atoms of a primary capsule")
    remake: bool = remake()
    remake_weight: float = remake_weight()
    routing: int = size(
        3, "routing iterations of the class capsules", at_most=MOST_ITERATIONS
    )


class CapsuleModel(Classifier):
    """Convolution, primary capsules, class capsules and a decoder.

    The layers are those of `layers.CapsuleStack`; logits are the lengths of
    its class capsules. With `remake`, a decoder redraws the image from the
    capsule of each label.

    Call arguments:
      x: dict with `images` [B, H, W, C] and, for the decoder, `recons_label`
        [B] and with two targets `spare_label` [B]. Without labels the longest
        capsules are redrawn.

    Returns (from a call) a dict:
      logits: float32 [B, classes].
      capsules: [B, classes, class_atoms], the class capsules.
      recons, with two targets also spare_recons: [B, H, W, C], if `remake`.

    Args:
      shape, num_targets, hparams, **kwargs: as of `Classifier`.
    """

    HParams = HParams
    has_class_capsules = True

    def __init__(self, shape, num_targets, hparams, **kwargs):
        super().__init__(shape, num_targets, hparams, **kwargs)
        self._stack = layers.CapsuleStack(
            shape.num_classes,
            conv_channels=hparams.conv_channels,
            num_prime_capsules=hparams.num_prime_capsules,
            primary_atoms=hparams.primary_atoms,
            class_atoms=hparams.class_atoms,
            num_routing=hparams.routing,
            leaky=hparams.leaky,
            padding=hparams.padding,
        )
        # Under these names Keras finds their weights, also in a file.
        self.conv1 = self._stack.conv1
        self.conv_capsule1 = self._stack.conv_capsule1
        self.capsule2 = self._stack.capsule2
        if hparams.remake:
            self.recons = layers.Reconstruction(
                shape.height, shape.width, shape.depth, name="recons"
            )
            self.track_reconstructions()

    def activations(self, images):
        return self._stack.activations(images)

    def routing_of(self, images):
        primary = self.activations(images)["conv_capsule1"]
        couplings = self.capsule2.couplings(self._stack.flatten(primary))
        by_position = on_grid(couplings, primary.shape[1:-1])
        receptive_field = self.receptive_field(self.hparams)
        return Routing(by_position, self.capsule2.leaky, receptive_field)

    def call(self, x):
        capsules = self.activations(x[keys.IMAGES])["capsule2"]
        return self.capsule_outputs(x, capsules)

    @classmethod
    def receptive_field(cls, hparams):
        return tuple(
            (KERNEL_SIZE, strides, hparams.padding)
            for strides in (1, PRIMARY_STRIDES)
        )

    @classmethod
    def tf1_variables(cls, shape, hparams):
        kernel = (KERNEL_SIZE, KERNEL_SIZE)
        types, atoms = hparams.num_prime_capsules, hparams.primary_atoms
        grid = (cls.positions(n, hparams) for n in (shape.height, shape.width))
        primary = (types, *grid)
        classes = (shape.num_classes, hparams.class_atoms)
        variables = {
            **layer("conv1", (*kernel, shape.depth), hparams.conv_channels),
            "conv_capsule1/weights": plain(
                *kernel, hparams.conv_channels, types * atoms
            ),
            "conv_capsule1/biases": plain(types, atoms, 1, 1),
            # Input capsules: type, row, column there; row, column, type here.
            "capsule2/weights": Tf1Variable(
                (primary, (atoms,), (math.prod(classes),)), (1, 2, 0, 3, 4)
            ),
            "capsule2/biases": plain(*classes),
        }
        if not hparams.remake:
            return variables
        # Pixels: channel, row, column there; row, column, channel here.
        pixels = (shape.depth, shape.height, shape.width)
        first, second = HIDDEN_UNITS
        return {
            **variables,
            **layer("recons/recons_1", (math.prod(classes),), first),
            **layer("recons/recons_2", (first,), second),
            "recons/recons_3/weights": Tf1Variable(
                ((second,), pixels), (0, 2, 3, 1)
            ),
            "recons/recons_3/biases": Tf1Variable((pixels,), (1, 2, 0)),
        }
