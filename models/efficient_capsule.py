"""Efficient-CapsNet (Mazzia and others 2021), see layers/self_attention.py."""

import dataclasses
import math
from typing import ClassVar

import keras

import layers
from input_data import features as keys
from layers.base_layers import batch_normalization
from models.classifier import Classifier, Routing
from models.hparams import DecoderHParams, network, size


@dataclasses.dataclass(frozen=True)
class HParams(DecoderHParams):
    """Hyper-parameters of Efficient-CapsNet, with the authors' values."""

    loss_type: ClassVar = "margin"
    class_atoms: int = size(16, "atoms of a class capsule")
    decay_rate: float = 0.97
    decay_steps: int = 3750  # an epoch of 60,000 images in batches of 16
    first_channels: int = size(32, "channels of the first convolution")
    learning_rate: float = 5e-4
    middle_channels: int = size(64, "channels of the next two convolutions")
    normalization: str = network(
        "batch",
        "what follows each convolution: batch normalization after relu, or "
        "instance normalization after leaky relu, as for smallNORB",
        choices=("batch", "instance"),
    )
    num_prime_capsules: int = size(16, "number of primary capsules")
    primary_atoms: int = size(8, "atoms of a primary capsule")


def layout(height, width):
    """Returns (kernel sizes, strides, kernel size of the primary capsules).

    The first convolution is 5x5, or 7x7 with stride 2 for images of at least
    48x48. Three 3x3 convolutions follow. The last 1, 2 or 3 of these have
    stride 2: the fewest that make the shorter side of the last map at most 9.
    There is no padding. The primary capsules' kernel has the size of this map.
    After a 5x5 convolution, this kernel's sides are reduced by 1 if even: to
    5x5 for MultiMNIST's 6x6 map. The authors' networks follow these rules.
    """
    is_large = min(height, width) >= 48
    kernels = (7 if is_large else 5, 3, 3, 3)
    for num_strided in (1, 2, 3):
        rest = (1,) * (3 - num_strided) + (2,) * num_strided
        strides = (2 if is_large else 1, *rest)
        sides = [height, width]
        for kernel, stride in zip(kernels, strides, strict=True):
            sides = [(side - kernel) // stride + 1 for side in sides]
        if min(sides) <= 9:
            break
    if not is_large:
        sides = [side - (side + 1) % 2 for side in sides]
    return kernels, strides, tuple(sides)


class EfficientCapsuleModel(Classifier):
    """Four convolutions, primary capsules, self-attention and a decoder.

    Normalization follows each convolution; `layout` gives all kernel sizes. A
    depthwise convolution at a single position makes `num_prime_capsules`
    primary capsules. Self-attention routes them to one capsule of `class_atoms`
    atoms for each class. Logits are the lengths |v| of these capsules; the
    authors' logits are sqrt(|v|^2 + 1e-7). There is a decoder if `remake`.
    """

    HParams = HParams
    has_class_capsules = True
    adam_epsilon = 1e-7  # the default of Keras, which the authors use
    schedule_options: ClassVar = {"smallest": 5e-5, "staircase": True}

    def __init__(self, shape, num_targets, hparams, **kwargs):
        super().__init__(shape, num_targets, hparams, **kwargs)
        kernels, strides, primary = layout(shape.height, shape.width)
        middle = hparams.middle_channels
        last = hparams.num_prime_capsules * hparams.primary_atoms
        channels = (hparams.first_channels, middle, middle, last)
        is_batch = hparams.normalization == "batch"
        self.convolutions = [
            keras.layers.Conv2D(
                channels[i],
                kernels[i],
                strides=strides[i],
                activation="relu" if is_batch else keras.layers.LeakyReLU(0.3),
                kernel_initializer="he_normal",
                name=f"conv{i + 1}",
            )
            for i in range(4)
        ]
        self.normalizations = [
            batch_normalization(f"norm{i + 1}", momentum=0.99, epsilon=1e-3)
            if is_batch
            # Group normalization with a group for each channel.
            else keras.layers.GroupNormalization(-1, name=f"norm{i + 1}")
            for i in range(4)
        ]
        self.primary_capsule = layers.DepthwiseCapsule(
            hparams.primary_atoms, primary, name="primary_capsule"
        )
        self.class_capsule = layers.SelfAttentionCapsule(
            shape.num_classes, hparams.class_atoms, name="class_capsule"
        )
        self.add_decoder(shape, he_normal=True)

    def activations(self, images, training=False):
        outputs = {}
        hidden = images
        pairs = zip(self.convolutions, self.normalizations, strict=True)
        for convolution, normalization in pairs:
            outputs[convolution.name] = convolution(hidden)
            hidden = normalization(outputs[convolution.name], training=training)
        primary = outputs["primary_capsule"] = self.primary_capsule(hidden)
        outputs["class_capsule"] = self.class_capsule(primary)
        return outputs

    def routing_of(self, images):
        """Attention as couplings [1, B, 1, 1, primary capsules, classes]."""
        primary = self.activations(images)["primary_capsule"]
        attention = self.class_capsule.attention(primary)
        return Routing(attention[None, :, None, None])

    def call(self, x, training=False):
        activations = self.activations(x[keys.IMAGES], training)
        return self.capsule_outputs(x, activations["class_capsule"])

    def classification_loss(self, labels, outputs, step):
        """2 * classes * `margin_loss`: equation 4 of Sabour et al. 2017."""
        loss = layers.margin_loss(labels, outputs[keys.LOGITS])
        return 2.0 * labels.shape[-1] * loss

    def reconstruction_loss(self, images, reconstructions):
        """784 * `remake_weight` (0.0005 by default) * mean squared error."""
        scale = 28 * 28 / math.prod(images.shape[1:])
        return scale * super().reconstruction_loss(images, reconstructions)

    @classmethod
    def smallest_image(cls, hparams):
        return 11  # `layout` leaves one pixel of it
