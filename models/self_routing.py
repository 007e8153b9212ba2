"""The network of Hahn, Pyeon and Kim 2019 for smallNORB.

Source: "Self-Routing Capsule Networks" (NeurIPS 2019) and the authors' code.
"""

import dataclasses

import keras
from keras import ops

import layers
from common.flags import field
from input_data import features as keys
from layers.utils import is_mirrored
from models.classifier import Classifier, Routing, on_grid
from models.hparams import BaseHParams, size

STRIDES = (1, 2, 1, 2, 1, 2, 1)


@dataclasses.dataclass(frozen=True)
class HParams(BaseHParams):
    """Hyper-parameters: the authors', but half the types, and Adam."""

    atoms: int = size(16, "atoms of a pose")
    channels: int = size(16, "channels of the first convolution")
    depth: int = size(1, "layers of capsules after the primary ones")
    learning_rate: float = field(3e-3, "learning rate at step 0", above=0)
    types: int = size(16, "types of capsules; 32 in the authors' code")
    weight_decay: float = field(
        1e-4, "weight of half the sum of squared weights", at_least=0
    )


class SelfRoutingModel(Classifier):
    """Seven convolutions and capsules with self-routing, SR-`depth`.

    conv 3x3 to 1, 2, 2, 4, 4 and 8 times `channels` channels and to the poses
    and activations of primary capsules of `types` types, with `STRIDES`, batch
    normalization and relu (none after the last, a sigmoid of the activations);
    `depth` - 1 layers 3x3 of capsules; class capsules without poses. Logits
    are their activations, which sum to 1, and the only atom of `capsules`.
    """

    HParams = HParams
    has_class_capsules = True

    def __init__(self, shape, num_targets, hparams, **kwargs):
        super().__init__(shape, num_targets, hparams, **kwargs)
        self.types, self.atoms = hparams.types, hparams.atoms
        channels = [n * hparams.channels for n in (1, 2, 2, 4, 4, 8)]
        channels += [self.types * (self.atoms + 1)]
        # The authors pad both sides by one; SAME with a stride of 2 pads only
        # after an even size.
        self.pad = keras.layers.ZeroPadding2D(1, data_format="channels_last")
        self.convolutions = [
            keras.layers.Conv2D(
                channels[i],
                3,
                strides=strides,
                use_bias=False,
                data_format="channels_last",
                kernel_initializer="he_uniform",
                name=f"conv{i + 1}",
            )
            for i, strides in enumerate(STRIDES)
        ]
        self.routed = [
            layers.SelfRoutingCapsules(
                self.types, self.atoms, 3, padding="SAME", name=f"routed{i + 1}"
            )
            for i in range(hparams.depth - 1)
        ]
        options = {"momentum": 0.9, "epsilon": 1e-5}
        options["synchronized"] = is_mirrored()
        self.normalizations = [
            keras.layers.BatchNormalization(name=f"norm{i + 1}", **options)
            for i in range(len(STRIDES) + len(self.routed))
        ]
        classes = shape.num_classes
        self.classes = layers.SelfRoutingCapsules(classes, name="classes")

    def activations(self, images, training=False):
        outputs, x = {}, images
        normalizations = iter(self.normalizations)
        for layer in self.convolutions:
            x = x if x is images else ops.relu(x)
            x = next(normalizations)(layer(self.pad(x)), training=training)
            outputs[layer.name] = x
        poses, logits = ops.split(x, [self.types * self.atoms], axis=-1)
        activations = ops.sigmoid(ops.cast(logits, "float32"))
        shape = (-1, *x.shape[1:3], self.types, self.atoms)
        poses = ops.reshape(poses, shape)
        for layer in self.routed:
            poses, activations = layer((poses, activations))
            x = ops.reshape(poses, (*shape[:3], self.types * self.atoms))
            x = next(normalizations)(x, training=training)
            poses = ops.reshape(x, shape)
        outputs["poses"], outputs["activations"] = poses, activations
        outputs["classes"] = self.classes((poses, activations))
        return outputs

    def routing_of(self, images):
        outputs = self.activations(images)
        children = outputs["poses"], outputs["activations"]
        couplings = self.classes.couplings(children)[None]  # one iteration
        return Routing(on_grid(couplings, children[1].shape[1:]))

    def call(self, x, training=False):
        logits = self.activations(x[keys.IMAGES], training)["classes"]
        return {keys.LOGITS: logits, keys.CAPSULES: logits[..., None]}

    def classification_loss(self, labels, outputs, step):
        """Cross-entropy of the activations, summed over the labels."""
        logarithms = ops.log(outputs[keys.LOGITS] + 1e-12)
        return -ops.sum(labels * logarithms, axis=-1)

    def create_weights(self, shape):
        super().create_weights(shape)
        decay = keras.regularizers.L2(0.5 * self.hparams.weight_decay)
        for weight in self.trainable_weights:
            weight.regularizer = decay

    @classmethod
    def receptive_field(cls, hparams):
        # With a zero on both sides kernels are centered as those of one pixel.
        return tuple((1, strides, "VALID") for strides in STRIDES)
