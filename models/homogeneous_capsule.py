"""The network of Byerly, Kalganova and Dear: layers/homogeneous.py.

Sources: https://arxiv.org/abs/2001.09136 and the authors' code.
"""

import dataclasses
from typing import ClassVar

import keras

import layers
from common.errors import UserError
from common.flags import field
from input_data import features as keys
from layers.base_layers import batch_normalization
from layers.homogeneous import INITIALIZER, MERGE_INITIALIZERS, ORDERS
from models.classifier import Classifier, convolution_block
from models.hparams import BaseHParams, ema, loss_type, size

# Convolutions between two branches.
BRANCH_DISTANCE = 3


@dataclasses.dataclass(frozen=True)
class HParams(BaseHParams):
    """Hyper-parameters with the authors' values, but for `ema`, `momentum`.

    The authors' 0.999 and 0.9997 fit trainings of at least 10,000 steps.
    """

    PRESETS: ClassVar = {"long": {"ema": 0.999, "momentum": 0.9997}}

    branches: int = size(3, "branches, one after every third convolution")
    capsules: bool = field(
        True,
        "class capsules in each branch, or else a dense layer",
        network=True,
    )
    convolutions: int = size(9, "convolutions; the last one has a branch")
    decay_rate: float = 0.98
    # An epoch of 60,000 images in batches of 120.
    decay_steps: int = 500
    ema: float = ema(0.99)
    first_channels: int = size(32, "channels of the first convolution")
    loss_type: str = loss_type("softmax")
    merge: str = field(
        "ones",
        "initial weights of the branches; equal ones are not trained",
        choices=tuple(MERGE_INITIALIZERS),
        network=True,
    )
    momentum: float = field(
        0.99,
        "momentum of batch normalization's moving mean and variance",
        at_least=0,
        at_most=1,
    )
    more_channels: int = size(16, "channels that each convolution adds")
    order: str = field(
        "xyz",
        "order of a map's numbers in capsules: xyz makes one capsule of each "
        "position, zxy one of each channel",
        choices=tuple(ORDERS),
        network=True,
    )

    def __post_init__(self):
        super().__post_init__()
        if self.branch_ends[0] < 1:
            raise UserError(
                f"branches={self.branches} are too many for "
                f"convolutions={self.convolutions}"
            )

    @property
    def branch_ends(self):
        """The numbers of the convolutions that have a branch."""
        last, distance = self.convolutions, BRANCH_DISTANCE
        first = last - distance * (self.branches - 1)
        return range(first, last + 1, distance)


class HomogeneousCapsuleModel(Classifier):
    """3x3 convolutions, branches with class capsules, merged lengths.

    Each of the `convolutions` has batch normalization and relu. A branch after
    the last one, the third last and so on has a `HomogeneousCapsule` layer; its
    lengths, or the outputs of a dense layer, are merged into the logits.
    Pixels are scaled to [-1, 1].
    """

    HParams = HParams
    adam_epsilon = 1e-7  # the default of Keras, which the authors use
    schedule_options: ClassVar = {"smallest": 1e-7, "staircase": True}

    def __init__(self, shape, num_targets, hparams, **kwargs):
        super().__init__(shape, num_targets, hparams, **kwargs)
        self._norm = {
            "momentum": hparams.momentum,
            "epsilon": 1e-3,
            "scale": False,
        }
        self.convolutions = [
            convolution_block(
                hparams.first_channels + n * hparams.more_channels,
                3,
                1,
                f"conv{n + 1}",
                kernel_initializer=INITIALIZER,
                **self._norm,
            )
            for n in range(hparams.convolutions)
        ]
        branch = self._capsules if hparams.capsules else self._dense
        self.branches = [
            branch(shape.num_classes, f"branch{n}") for n in hparams.branch_ends
        ]
        self.merge = layers.MergeBranches(
            hparams.merge, hparams.momentum, name="merge"
        )

    def _capsules(self, num_classes, name):
        return layers.HomogeneousCapsule(
            num_classes,
            order=self.hparams.order,
            momentum=self.hparams.momentum,
            name=name,
        )

    def _dense(self, num_classes, name):
        dense = keras.layers.Dense(
            num_classes, use_bias=False, kernel_initializer=INITIALIZER
        )
        norm = batch_normalization("norm", dtype="float32", **self._norm)
        block = [keras.layers.Flatten(), dense, norm]
        return keras.Sequential(block, name=name)

    def activations(self, images):
        outputs = {}
        hidden = 2.0 * images - 1.0
        for convolution in self.convolutions:
            hidden = outputs[convolution.name] = convolution(hidden)
        ends = self.hparams.branch_ends
        for end, branch in zip(ends, self.branches, strict=True):
            outputs[branch.name] = branch(outputs[f"conv{end}"])
        return outputs

    def call(self, x, training=None):  # the layers see `training`
        outputs = self.activations(x[keys.IMAGES])
        merged = [outputs[branch.name] for branch in self.branches]
        if self.hparams.capsules:
            merged = [layers.lengths(capsules) for capsules in merged]
        return {keys.LOGITS: self.merge(merged)}

    @classmethod
    def receptive_field(cls, hparams):
        return ((3, 1, "VALID"),) * hparams.convolutions
