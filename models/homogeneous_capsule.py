"""The network of Byerly, Kalganova and Dear, see layers/homogeneous.py."""

import dataclasses
from typing import ClassVar

import keras
from keras import ops

import layers
from common.flags import field
from input_data import features as keys
from layers.base_layers import batch_normalization
from layers.homogeneous import INITIALIZER, ORDERS
from models.classifier import Classifier, convolution_block
from models.hparams import BaseHParams, loss_type, network, size

# Initial weights of the branches; those of "equal" are not trained.
MERGES = {"equal": "ones", "random": INITIALIZER, "ones": "ones"}


@dataclasses.dataclass(frozen=True)
class HParams(BaseHParams):
    """Hyper-parameters with the authors' values, except `ema` and `momentum`.

    preset=long, for 10,000 or more steps, has the authors' values of these two.
    """

    PRESETS: ClassVar = {"long": {"ema": 0.999, "momentum": 0.9997}}

    branches: int = size(
        3, "largest number of branches; every third convolution can have one"
    )
    convolutions: int = size(9, "number of convolutions")
    decay_rate: float = 0.98
    decay_steps: int = 500  # an epoch of 60,000 images in batches of 120
    ema: float = 0.99
    first_channels: int = size(32, "channels of the first convolution")
    loss_type: str = loss_type("softmax")
    merge: str = network(
        "ones",
        "initial weights of the branches; equal: ones that are never trained",
        choices=tuple(MERGES),
    )
    momentum: float = field(
        0.99, "momentum of all batch normalizations", at_least=0, below=1
    )
    more_channels: int = size(16, "channels that each convolution adds")
    order: str = network(
        "xyz",
        "input capsules of a branch: one per position (xyz) or channel (zxy)",
        choices=tuple(ORDERS),
    )


class HomogeneousCapsuleModel(Classifier):
    """3x3 convolutions with capsule branches, which are merged to logits.

    The last convolution and every third before it, at most `branches` in all,
    have a branch. The capsule lengths [B, classes, branches] are multiplied by
    a weight per branch, normalized over batch and classes, and summed over the
    branches. Due to the normalization, only the signs of these weights matter.
    """

    HParams = HParams
    has_class_capsules = True  # those of the last branch
    has_lengths = False
    adam_epsilon = 1e-7  # the default of Keras, which the authors use
    schedule_options: ClassVar = {"smallest": 1e-7, "staircase": True}

    def __init__(self, shape, num_targets, hparams, **kwargs):
        super().__init__(shape, num_targets, hparams, **kwargs)
        norm = {"momentum": hparams.momentum, "epsilon": 1e-3, "scale": False}
        options = {"kernel_initializer": INITIALIZER, **norm}
        first, more = hparams.first_channels, hparams.more_channels
        self.convolutions = [
            convolution_block(first + n * more, 3, 1, f"conv{n + 1}", **options)
            for n in range(hparams.convolutions)
        ]
        ends = range(hparams.convolutions, 0, -3)[: hparams.branches]
        capsules = shape.num_classes, hparams.order, hparams.momentum
        self.branches = [
            layers.HomogeneousCapsule(*capsules, name=f"branch{end}")
            for end in reversed(ends)
        ]
        weigh = keras.layers.EinsumDense(
            "bok,k->bok",
            (shape.num_classes, len(ends)),
            kernel_initializer=MERGES[hparams.merge],
            trainable=hparams.merge != "equal",
            dtype="float32",
        )
        normalize = batch_normalization("norm", dtype="float32", **norm)
        self.merge = keras.Sequential([weigh, normalize], name="merge")

    def activations(self, images):
        outputs, hidden = {}, 2.0 * images - 1.0
        for convolution in self.convolutions:
            hidden = outputs[convolution.name] = convolution(hidden)
        for branch in self.branches:
            end = branch.name.replace("branch", "conv")
            outputs[branch.name] = branch(outputs[end])
        return outputs

    def call(self, x, training=None):  # the layers see `training`
        outputs = self.activations(x[keys.IMAGES])
        capsules = [outputs[branch.name] for branch in self.branches]
        lengths = ops.stack([layers.lengths(c) for c in capsules], axis=-1)
        logits = ops.sum(self.merge(lengths), axis=-1)
        return {keys.LOGITS: logits, keys.CAPSULES: capsules[-1]}

    @classmethod
    def receptive_field(cls, hparams):
        return ((3, 1, "VALID"),) * hparams.convolutions
