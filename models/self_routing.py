"""The network of the authors of self-routing, for smallNORB."""

import dataclasses

import keras
from keras import ops

import layers
from models.classifier import convolution_block
from models.hparams import BaseHParams, size, weight_decay
from models.matrix_capsule import PoseModel

# Channels, in units of `channels`, and strides of the convolutions.
CONVOLUTIONS = ((1, 1), (2, 2), (2, 1), (4, 2), (4, 1), (8, 2))


@dataclasses.dataclass(frozen=True)
class HParams(BaseHParams):
    """The authors' values, but with Adam and half as many types of capsules."""

    atoms: int = size(16, "atoms of a pose")
    channels: int = size(16, "channels of the first convolution")
    depth: int = size(1, "layers of capsules after the primary capsules")
    learning_rate: float = 3e-3
    types: int = size(16, "types of capsules; 32 in the authors' code")
    weight_decay: float = weight_decay(1e-4, "weights")


class SelfRoutingModel(PoseModel):
    """Seven 3x3 convolutions, then `depth` layers of self-routing capsules.

    Batch normalization follows each convolution; relu follows all but the last.
    The last convolution gives poses and activation logits of primary capsules.
    The last capsule layer has the class capsules, whose activations sum to 1;
    the others are 3x3. Primary and 3x3 capsules have `types` types.
    """

    HParams = HParams

    def __init__(self, shape, num_targets, hparams, **kwargs):
        super().__init__(shape, num_targets, hparams, **kwargs)
        # The authors pad both sides by one. SAME with a stride of 2 would pad
        # only the end of an even size.
        self.pad = keras.layers.ZeroPadding2D(1)
        self.convolutions = [
            convolution_block(n * hparams.channels, 3, strides, f"conv{i}")
            for i, (n, strides) in enumerate(CONVOLUTIONS, 1)
        ]
        numbers = hparams.types * (hparams.atoms + 1)
        self.primary = convolution_block(numbers, 3, 1, "primary", relu=False)
        capsules = layers.SelfRoutingCapsules
        sizes = hparams.types, hparams.atoms, 3
        self.routed = [
            capsules(*sizes, padding="SAME", name=f"routed{i + 1}")
            for i in range(hparams.depth - 1)
        ]
        self.classes = capsules(shape.num_classes, name="class_capsules")

    def primary_capsules(self, images):
        outputs, x = {}, images
        for block in self.convolutions:
            x = outputs[block.name] = block(self.pad(x))
        types, atoms = self.hparams.types, self.hparams.atoms
        x = self.primary(self.pad(x))
        poses, logits = ops.split(x, [types * atoms], axis=-1)
        poses = ops.reshape(poses, (-1, *x.shape[1:3], types, atoms))
        return outputs, (poses, ops.sigmoid(ops.cast(logits, "float32")))

    def decays(self, weight):
        return True

    @classmethod
    def receptive_field(cls, hparams):
        # A zero on each side: kernels are centered like those of one pixel.
        return tuple((1, strides, "VALID") for _, strides in CONVOLUTIONS)
