"""The network of Hahn, Pyeon and Kim 2019 for small images, SR-1.

Source: "Self-Routing Capsule Networks", NeurIPS 2019, and the authors' code.
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
from models.optimizer import OPTIMIZERS

# Channels of the convolutions in units of the first one's, and strides.
CONVOLUTIONS = ((1, 1), (2, 2), (2, 1), (4, 2), (4, 1), (8, 2))


@dataclasses.dataclass(frozen=True)
class HParams(BaseHParams):
    """Hyper-parameters with the authors' values, but half their types."""

    atoms: int = size(16, "atoms of a pose")
    channels: int = size(
        16, "channels of the first convolution, an eighth of the last one's"
    )
    depth: int = size(
        1, "layers of self-routing, that to the class capsules included"
    )
    learning_rate: float = field(
        0.1, "learning rate at step 0; 0.02 for batches below 32", above=0
    )
    optimizer: str = field(
        "sgd",
        "sgd, with momentum 0.9, as the authors; adam or muon",
        choices=tuple(OPTIMIZERS),
    )
    schedule: str = field(
        "drops",
        "learning rate: drops divides it by ten after 1/2 and after 3/4 of "
        "the steps, as the authors; exponential, cosine and linear decay",
        choices=("exponential", "cosine", "linear", "drops"),
    )
    types: int = size(16, "types of capsules; 32 in the authors' code")
    weight_decay: float = field(
        1e-4, "weight of half the sum of all squared weights", at_least=0
    )


class SelfRoutingModel(Classifier):
    """Six convolutions and layers of capsules with self-routing.

    conv 3x3 to 1, 2, 2, 4, 4 and 8 times `channels` channels, with strides 1,
    2, 1, 2, 1 and 2, each with batch normalization and relu; `types` primary
    capsules at each position; `depth` - 1 layers 3x3 of `types` capsules; one
    capsule for each class. Logits are the activations of the class capsules,
    probabilities that sum to 1; their logarithm enters the cross-entropy.
    `capsules` has the activation as the only atom of a class.
    """

    HParams = HParams
    has_class_capsules = True

    def __init__(self, shape, num_targets, hparams, **kwargs):
        super().__init__(shape, num_targets, hparams, **kwargs)
        # The authors pad both sides by one; with SAME and a stride of 2 zeros
        # would follow even sizes only.
        self.pad = keras.layers.ZeroPadding2D(1, data_format="channels_last")
        self.convolutions = [
            keras.layers.Conv2D(
                units * hparams.channels,
                3,
                strides=strides,
                use_bias=False,
                data_format="channels_last",
                kernel_initializer="he_uniform",
                name=f"conv{i + 1}",
            )
            for i, (units, strides) in enumerate(CONVOLUTIONS)
        ]
        self.normalizations = [
            keras.layers.BatchNormalization(
                momentum=0.9,
                epsilon=1e-5,
                synchronized=is_mirrored(),
                name=f"norm{i + 1}",
            )
            for i in range(len(CONVOLUTIONS))
        ]
        self.primary = layers.PrimarySelfRoutingCapsules(
            hparams.types, hparams.atoms, name="primary_capsules"
        )
        self.routed = [
            layers.SelfRoutingCapsules(
                hparams.types,
                hparams.atoms,
                kernel_size=3,
                padding="SAME",
                name=f"conv_capsules{i + 1}",
            )
            for i in range(hparams.depth - 1)
        ]
        self.classes = layers.ClassSelfRoutingCapsules(
            shape.num_classes, name="class_capsules"
        )

    def activations(self, images, training=False):
        outputs = {}
        capsules = images
        for convolution, normalization in zip(
            self.convolutions, self.normalizations, strict=True
        ):
            capsules = convolution(self.pad(capsules))
            capsules = ops.relu(normalization(capsules, training=training))
            outputs[convolution.name] = capsules
        for layer in (self.primary, *self.routed):
            capsules = layer(capsules, training=training)
            outputs[f"{layer.name}/poses"] = capsules[0]
            outputs[f"{layer.name}/activations"] = capsules[1]
        outputs[self.classes.name] = self.classes(capsules)
        return outputs

    def routing_of(self, images):
        """Couplings, without iterations as those of one."""
        outputs = self.activations(images)
        last = (self.primary, *self.routed)[-1].name
        poses = outputs[f"{last}/poses"]
        activations = outputs[f"{last}/activations"]
        couplings = self.classes.couplings((poses, activations))
        return Routing(on_grid(couplings[None], poses.shape[1:-1]))

    def call(self, x, training=False):
        outputs = self.activations(x[keys.IMAGES], training)
        activations = outputs[self.classes.name]
        return {
            keys.LOGITS: activations,
            keys.CAPSULES: activations[..., None],
        }

    def classification_loss(self, labels, outputs, step):
        """Cross-entropy, with k labels the sum of theirs."""
        log_activations = ops.log(outputs[keys.LOGITS] + 1e-12)
        return -ops.sum(labels * log_activations, axis=-1)

    def create_weights(self, shape):
        super().create_weights(shape)
        if self.hparams.weight_decay:
            decay = keras.regularizers.L2(0.5 * self.hparams.weight_decay)
            for weight in self.trainable_weights:
                weight.regularizer = decay

    @classmethod
    def receptive_field(cls, hparams):
        # With a zero on both sides kernels are centered at the pixels at which
        # kernels of one pixel are.
        return tuple((1, strides, "VALID") for _, strides in CONVOLUTIONS)
