"""Efficient-CapsNet: few weights, and routing by self-attention in one step.

Source: V. Mazzia, F. Salvetti, M. Chiaberge, "Efficient-CapsNet: capsule
network with self-attention routing", Scientific Reports 11, 14634 (2021),
https://arxiv.org/abs/2101.12491, and the authors' code.
"""

import dataclasses
import math

import keras

import layers
from input_data import features as keys
from layers.reconstruction import HIDDEN_UNITS
from layers.utils import is_mirrored
from models import optimizer
from models.classifier import Classifier, Routing
from models.hparams import BaseHParams, remake, remake_weight, size
from old.fields import MOST_STEPS, field

# Images of this height and width begin with a wide convolution, as those of
# smallNORB do.
LARGE_IMAGE = 48
# Convolutions halve the map until no more is left, as far as there are any.
LARGEST_MAP = 9
# Below it nothing would be left: 5x5, two of 3x3, and 3x3 with stride 2.
SMALLEST_IMAGE = 11
SMALLEST_LEARNING_RATE = 5e-5
# Keras' default.
LEAKY_SLOPE = 0.3


@dataclasses.dataclass(frozen=True)
class HParams(BaseHParams):
    """Hyper-parameters of Efficient-CapsNet, with the authors' values."""

    class_atoms: int = size(16, "atoms of a class capsule")
    decay_rate: float = field(
        0.97, "factor of schedule=exponential for `decay_steps`", above=0
    )
    decay_steps: int = field(
        3750,
        "steps for one decay factor; 3750 are the authors' epoch, 60,000 "
        "images in batches of 16",
        at_least=1,
        at_most=MOST_STEPS,
    )
    first_channels: int = size(32, "channels of the first convolution")
    learning_rate: float = field(5e-4, "learning rate at step 0", above=0)
    middle_channels: int = size(64, "channels of the second and third")
    normalization: str = field(
        "batch",
        "what follows each convolution: batch normalisation after relu, or "
        "instance normalisation after leaky relu, as for smallNORB",
        choices=("batch", "instance"),
        network=True,
    )
    num_prime_capsules: int = size(16, "primary capsules")
    primary_atoms: int = size(8, "atoms of a primary capsule")
    remake: bool = remake()
    remake_weight: float = remake_weight(
        "what the mean squared error of redrawn pixels counts in the loss, "
        "times 784"
    )
    schedule: str = field(
        "exponential",
        "the rate by step: exponential is max(5e-5, learning_rate * "
        "decay_rate^floor(step / decay_steps)), as the authors have it; cosine "
        "and linear fall to 0 at --max_steps",
        choices=("exponential", "cosine", "linear"),
    )

    @property
    def channels(self):
        """Of the four convolutions: the last ones become primary capsules."""
        return (
            self.first_channels,
            self.middle_channels,
            self.middle_channels,
            self.num_prime_capsules * self.primary_atoms,
        )


@dataclasses.dataclass(frozen=True)
class Layout:
    """The convolutions for images of one size, all without padding.

    Attributes:
      kernel_sizes: tuple of 4 ints.
      strides: tuple of 4 ints.
      primary_kernel: (rows, columns) of the primary capsules' kernel.
    """

    kernel_sizes: tuple
    strides: tuple
    primary_kernel: tuple


def layout(height, width):
    """The network for any size of images; the published ones for theirs.

    The first convolution is 5x5, of images of at least 48x48 7x7 with stride
    2; three of 3x3 follow. Of these as many have stride 2, the last ones, but
    at least one, as it takes to leave a map of at most 9 pixels along the
    shorter side. The primary capsules' kernel is as large as the map; where
    the first convolution is 5x5 it is odd, as 5x5 on MultiMNIST's map of 6x6.

    Args:
      height: int, pixels, at least `SMALLEST_IMAGE`.
      width: int, as the height.

    Returns:
      `Layout`.
    """
    is_large = min(height, width) >= LARGE_IMAGE
    kernel_sizes = (7 if is_large else 5, 3, 3, 3)
    for halved in (1, 2, 3):
        strides = (2 if is_large else 1, *(1,) * (3 - halved), *(2,) * halved)
        left = [height, width]
        for kernel, stride in zip(kernel_sizes, strides, strict=True):
            left = [(pixels - kernel) // stride + 1 for pixels in left]
        if min(left) <= LARGEST_MAP:
            break
    if not is_large:
        left = [pixels - (pixels + 1) % 2 for pixels in left]
    return Layout(kernel_sizes, strides, tuple(left))


class EfficientCapsuleModel(Classifier):
    """Four convolutions, primary capsules, self-attention, and a decoder.

    Each convolution is followed by normalisation; `layout` has their sizes.
    `num_prime_capsules` primary capsules from a depthwise convolution as large
    as the map; one class capsule of `class_atoms` atoms per class by
    self-attention; logits are their lengths (`layers.lengths`; the authors add
    1e-7 under the root). With `remake`, a decoder redraws the image from the
    capsule of each label.

    Call arguments:
      x: dict with `images` [B, H, W, C] and, for the decoder, `recons_label`
        [B] and with two targets `spare_label` [B]. Without labels the longest
        capsules are redrawn.
      training: bool, whether batches are normalised by their own statistics,
        which move the saved ones; else by the saved ones.

    Returns (from a call) a dict:
      logits: float32 [B, classes].
      capsules: [B, classes, class_atoms], the class capsules.
      recons, with two targets also spare_recons: [B, H, W, C], if `remake`.

    Args:
      shape, num_targets, hparams, **kwargs: as of `Classifier`.
    """

    HParams = HParams
    has_class_capsules = True
    # The default of Keras, as the authors have it.
    adam_epsilon = 1e-7

    def __init__(self, shape, num_targets, hparams, **kwargs):
        super().__init__(shape, num_targets, hparams, **kwargs)
        sizes = layout(shape.height, shape.width)
        self.convolutions = [
            keras.layers.Conv2D(
                channels,
                kernel_size,
                strides=strides,
                activation=_activation(hparams),
                kernel_initializer="he_normal",
                data_format="channels_last",
                name=f"conv{number}",
            )
            for number, (channels, kernel_size, strides) in enumerate(
                zip(
                    hparams.channels,
                    sizes.kernel_sizes,
                    sizes.strides,
                    strict=True,
                ),
                start=1,
            )
        ]
        self.normalizations = [
            _normalization(hparams, name=f"norm{number}")
            for number in range(1, len(self.convolutions) + 1)
        ]
        self.primary_capsule = layers.DepthwiseCapsule(
            hparams.primary_atoms, sizes.primary_kernel, name="primary_capsule"
        )
        self.class_capsule = layers.SelfAttentionCapsule(
            shape.num_classes, hparams.class_atoms, name="class_capsule"
        )
        if hparams.remake:
            self.recons = layers.Reconstruction(
                *(shape.height, shape.width, shape.depth),
                he_normal=True,
                name="recons",
            )
            self.track_reconstructions()

    def activations(self, images, training=False):
        """What each layer gives, by its name: the last are class capsules."""
        found = {}
        hidden = images
        for convolution, normalization in zip(
            self.convolutions, self.normalizations, strict=True
        ):
            found[convolution.name] = convolution(hidden)
            hidden = normalization(found[convolution.name], training=training)
        primary = self.primary_capsule(hidden)
        found["primary_capsule"] = primary
        found["class_capsule"] = self.class_capsule(primary)
        return found

    def routing_of(self, images):
        """Attention as couplings: of one iteration, at one position."""
        primary = self.activations(images)["primary_capsule"]
        attention = self.class_capsule.attention(primary)
        return Routing(
            attention[None, :, None, None], False, receptive_field=()
        )

    def call(self, x, training=False):
        activations = self.activations(x[keys.IMAGES], training)
        return self.capsule_outputs(x, activations["class_capsule"])

    def classification_loss(self, labels, outputs, step):
        """The margin loss, summed over the classes and not halved."""
        loss = layers.margin_loss(labels, outputs[keys.LOGITS])
        return 2.0 * labels.shape[-1] * loss

    def reconstruction_loss(self, images, reconstructions):
        """784 * `remake_weight` times the mean of the squared difference."""
        # As the authors have it: of the mean over the pixels, 0.392.
        scale = 784 / math.prod(images.shape[1:])
        return scale * super().reconstruction_loss(images, reconstructions)

    @classmethod
    def make_schedule(cls, hparams, max_steps=None):
        if hparams.schedule != "exponential":
            return optimizer.make_schedule(hparams, max_steps)
        return optimizer.FlooredExponentialDecay(
            hparams.learning_rate,
            hparams.decay_steps,
            hparams.decay_rate,
            smallest=SMALLEST_LEARNING_RATE,
            staircase=True,
        )

    @classmethod
    def smallest_image(cls, hparams):
        return SMALLEST_IMAGE

    @classmethod
    def num_weights(cls, shape, hparams):
        sizes = layout(shape.height, shape.width)
        # A bias, and what normalises: scale, offset and moving statistics.
        others = 5 if hparams.normalization == "batch" else 3
        count, before = 0, shape.depth
        for channels, kernel in zip(
            hparams.channels, sizes.kernel_sizes, strict=True
        ):
            count += (kernel**2 * before + others) * channels
            before = channels
        count += (math.prod(sizes.primary_kernel) + 1) * before
        votes = hparams.primary_atoms * hparams.class_atoms
        classes = shape.num_classes
        count += classes * hparams.num_prime_capsules * (votes + 1)
        if hparams.remake:
            before = classes * hparams.class_atoms
            pixels = shape.height * shape.width * shape.depth
            for units in (*HIDDEN_UNITS, pixels):
                count += (before + 1) * units
                before = units
        return count


def _activation(hparams):
    if hparams.normalization == "batch":
        return "relu"
    return keras.layers.LeakyReLU(negative_slope=LEAKY_SLOPE)


def _normalization(hparams, name):
    if hparams.normalization == "instance":
        # Each channel is a group of its own.
        return keras.layers.GroupNormalization(groups=-1, name=name)
    return keras.layers.BatchNormalization(
        synchronized=is_mirrored(), name=name
    )
