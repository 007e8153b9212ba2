"""Pipelines over labelled images: one by one, and in pairs."""

import copy
import dataclasses

import numpy as np
import tensorflow as tf

from input_data.memory import require_memory, require_memory_for_padded
from input_data.pipeline import Pipeline
from input_data.randomness import (
    Stream,
    random_offsets,
    step_seed,
)
from input_data.transforms.augmentation import augment
from input_data.transforms.distortion import (
    crop_middle,
    distort_for_training,
    distorted_size,
)
from input_data.transforms.photo_distortion import (
    central_crop,
    random_brightness,
    random_contrast,
)
from input_data.transforms.shifting import (
    pad_images,
    require_possible_shift,
    shift_images,
    unit_range,
)

# The reference's MNIST records: training digits shifted by up to 2 pixels.
SINGLE_SHIFT = 2
# The paper's section 6: digits on 36x36, shifted by up to 4 pixels.
PAIR_PAD = 4
PAIR_SHIFT = 4
# A small batch of images, each a float32 for every pixel.
_BATCH_BYTES = 4 * 16
# What is drawn for a pair: its second image and both offsets.
_DRAWS_BYTES = 8 + 2 * 2 * 4


@dataclasses.dataclass(frozen=True)
class LabelledImages:
    """Images of one object each, and their classes.

    Attributes:
      images: uint8 array [N, H, W, C].
      labels: integer array [N], in [0, num_classes).
      num_classes: int.
      class_names: tuple of strings, or None if the classes are numbers.
    """

    images: np.ndarray
    labels: np.ndarray
    num_classes: int
    class_names: tuple[str, ...] | None = None

    def __getitem__(self, part):
        """The images of a slice or at some indices, as `LabelledImages`."""
        return dataclasses.replace(
            self, images=self.images[part], labels=self.labels[part]
        )

    def __len__(self):
        return len(self.images)


def make_pipeline(data, options, default_shift=0, **of_split):
    """The pipeline of labelled images for the number of targets.

    Args:
      data: `LabelledImages`.
      options: `Options`. With two targets `eval_size` may be any number of
        pairs; else at most the images there are count.
      default_shift: int, pixels that a training image of one object moves at
        most where the options do not say.
      **of_split: what the `Spec` says of how images were divided.

    Returns:
      `Pipeline`.

    Raises:
      UserError: if the images are too few, too small or too large for the
        options.
    """
    require_memory_for_padded(
        _BATCH_BYTES, data.images.shape[1:], options.pad or 0
    )
    paired = options.num_targets == 2
    default_pad = PAIR_PAD if paired else 0
    options = dataclasses.replace(
        options,
        shift=shift_of(options, PAIR_SHIFT if paired else default_shift),
        pad=default_pad if options.pad is None else options.pad,
    )
    require_possible_shift(options.shift, options.pad, data.images.shape[1:3])
    if not paired:
        return SingleObjects(ImageTensors(data), options, **of_split)
    require_memory(
        _DRAWS_BYTES * options.eval_size,
        f"--eval_size={options.eval_size}",
        "choose fewer",
    )
    from input_data.pairs import OverlappingPairs

    return OverlappingPairs(data, options, **of_split)


def shift_of(options, default):
    """Pixels that a training image moves at most.

    Args:
      options: `Options`.
      default: int, where they do not say and do not augment.
    """
    if options.shift is not None:
        return options.shift
    return 0 if options.augment else default


class ImageTensors:
    """Labelled images in memory, where tf.data reads them.

    Args:
      data: `LabelledImages`.
    """

    error = None

    def __init__(self, data):
        self.images = tf.constant(data.images, tf.uint8)
        self.labels = tf.constant(data.labels, tf.int32)
        self.shape = data.images.shape[1:]
        self.num_classes = data.num_classes
        self.class_names = data.class_names

    def __len__(self):
        return len(self.images)

    def take(self, indices):
        """Images uint8 [B, H, W, C] and labels int32 [B] at `indices`."""
        return tf.gather(self.images, indices), tf.gather(self.labels, indices)


class SingleObjects(Pipeline):
    """Images of one object, wherever they are stored.

    Every image is padded by `pad` pixels on each side. In training it moves
    by a row and a column offset, each uniform in [-shift, shift]: the
    distribution of the reference's 25 copies of each image for a shift of 2.
    Then comes, with `augment`, Efficient-CapsNet's augmentation, and at last,
    with `distort`, the reference's distortion.

    Args:
      source: `ImageTensors`, or what has its methods and attributes.
      options: `Options` with shift and pad.
      **of_split: what the `Spec` says of how images were divided.

    Raises:
      UserError: if the images are too small to be distorted.
    """

    def __init__(self, source, options, **of_split):
        height, width, _ = source.shape
        size = (height + 2 * options.pad, width + 2 * options.pad)
        if options.distort:
            size = distorted_size(*size)
        num_examples = min(options.eval_size, len(source))
        super().__init__(source, size, 1, num_examples, **of_split)
        self._shift = options.shift
        self._pad = options.pad
        self._distort = options.distort
        self._augment = options.augment

    def _training_batch(self, step, batch_size, seed):
        images, labels = self._source.take(
            self.training_indices(step, batch_size, seed)
        )
        images = pad_images(images, self._pad)
        if self._shift:
            offset_seed = step_seed(seed, Stream.SHIFT, step)
            offsets = random_offsets(offset_seed, batch_size, self._shift)
            images = shift_images(images, offsets, self._shift)
        if self._augment:
            images = augment(images, seed, step)
        if self._distort:
            images = distort_for_training(images, seed, step)
        return self._alone(images, labels)

    def _evaluation_batch(self, indices):
        images, labels = self._source.take(indices)
        images = pad_images(images, self._pad)
        if self._distort:
            images = crop_middle(images)
        return self._alone(images, labels)

    def _alone(self, images, labels):
        images = unit_range(images)
        return self._batch(images, [images], [labels])


# The reference's distortions, for pixels of 0 to 255.
MAX_BRIGHTNESS_DELTA = 63.0
CONTRAST_RANGE = (0.2, 1.8)


class StandardizedCrops(Pipeline):
    """Crops of photographs, standardised one by one.

    In training the crop and its distortions are `distort`'s; in evaluation it
    is the middle. Then each crop becomes (x - mean) / max(deviation,
    1 / sqrt(number of values)), over all its pixels and channels.

    The target of the decoder is the image that the network sees, as in the
    reference. Its values lie on both sides of 0 and beyond 1, while the
    decoder's last layer is a sigmoid: it can only redraw the part in [0, 1].

    Args:
      data: `LabelledImages`.
      crop_size: pair of int, height and width of the crops.
      distort: function of images uint8 [B, H, W, C], the step and the user's
        seed that returns float32 [B, *crop_size, C].
      eval_size: int, how many examples to evaluate, at most.
    """

    def __init__(self, data, crop_size, distort, eval_size):
        num_examples = min(eval_size, len(data))
        super().__init__(ImageTensors(data), crop_size, 1, num_examples)
        self._crop_size = crop_size
        self._offset = (0, 0)
        self._distort = distort

    def _training_batch(self, step, batch_size, seed):
        images, labels = self._source.take(
            self.training_indices(step, batch_size, seed)
        )
        return self._standardised(self._distort(images, step, seed), labels)

    def _evaluation_batch(self, indices):
        images, labels = self._source.take(indices)
        crops = central_crop(images, self._crop_size, self._offset)
        return self._standardised(tf.cast(crops, tf.float32), labels)

    def moved(self, offset):
        """The same images, whose crops in evaluation lie beside the middle.

        Args:
          offset: pair of int, pixels down and right.
        """
        other = copy.copy(self)
        other._offset = offset
        return other

    def _standardised(self, crops, labels):
        images = tf.image.per_image_standardization(crops)
        return self._batch(images, [images], [labels])


def distort_colours(images, step, seed):
    """Random brightness, then random contrast, each image by its own draw.

    Args:
      images: float32 [B, H, W, C], pixels of 0 to 255.
      step: scalar int64 tensor.
      seed: int, the user's.
    """
    images = random_brightness(
        images, MAX_BRIGHTNESS_DELTA, step_seed(seed, Stream.BRIGHTNESS, step)
    )
    return random_contrast(
        images, *CONTRAST_RANGE, step_seed(seed, Stream.CONTRAST, step)
    )
