"""Labelled images, and pipelines of images of one object."""

import copy
import dataclasses

import numpy as np
import tensorflow as tf

from input_data.augmentation import augment, distort
from input_data.pipeline import Pipeline, Stream, random_offsets, step_seed
from input_data.transforms import (
    CROP,
    central_crop,
    crop_margin,
    pad_images,
    shift_images,
    unit_range,
)

# The reference's MNIST records: training digits shifted by up to 2 pixels.
SINGLE_SHIFT = 2
# Section 6 of the paper: digits on 36x36, shifted by up to 4 pixels.
PAIR_PAD = 4
PAIR_SHIFT = 4


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


def make_pipeline(data, config, default_shift=0, **spec):
    """Creates the pipeline of `LabelledImages` for one or two targets.

    `default_shift` is the default of `config.shift` for one target; `spec` are
    other attributes of the `Spec`.
    """
    has_pairs = config.num_targets == 2
    shift = shift_of(config, PAIR_SHIFT if has_pairs else default_shift)
    pad = PAIR_PAD if has_pairs and config.pad is None else config.pad
    config = dataclasses.replace(config, shift=shift, pad=pad)
    if not has_pairs:
        return SingleObjects(ImageTensors(data), config, **spec)
    # `pairs` imports this file.
    from input_data.pairs import OverlappingPairs

    return OverlappingPairs(data, config, **spec)


def shift_of(config, default):
    """Largest shift of training images: given, else 0 with augment."""
    if config.shift is not None:
        return config.shift
    return 0 if config.augment else default


class ImageTensors:
    """Labelled images in memory, as a source of pipelines."""

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
    """Images of one object with pixels in [0, 1].

    Images are padded. Training images are then shifted by row and column
    offsets, each uniform in [-shift, shift]: for a shift of 2 the distribution
    of the reference's 25 copies of each image. Last come Efficient-CapsNet's
    augmentation (`augment`) and the reference's `distort`.

    Args:
      source: `ImageTensors`, or another class with its methods and attributes.
      config: `Config`; a shift or pad of None is 0.
      **spec: other attributes of the `Spec`.
    """

    def __init__(self, source, config, **spec):
        self._shift = config.shift or 0
        self._pad = config.pad or 0
        self._augment = config.augment
        self._distort = config.distort
        border = 2 * self._pad - CROP * bool(self._distort)
        height, width, _ = source.shape
        num_examples = min(config.eval_size, len(source))
        super().__init__(
            source, (height + border, width + border), 1, num_examples, **spec
        )

    def _training_batch(self, step, batch_size, seed):
        indices = self.training_indices(step, batch_size, seed)
        images, labels = self._source.take(indices)
        images = pad_images(images, self._pad)
        if self._shift:
            offset_seed = step_seed(seed, Stream.SHIFT, step)
            offsets = random_offsets(offset_seed, batch_size, self._shift)
            images = shift_images(images, offsets, self._shift)
        if self._augment:
            images = augment(images, seed, step)
        if self._distort:
            images = distort(images, seed, step)
        images = unit_range(images)
        return self._batch(images, [images], [labels])

    def _evaluation_batch(self, indices):
        images, labels = self._source.take(indices)
        images = pad_images(images, self._pad)
        if self._distort:
            images = crop_margin(images)
        images = unit_range(images)
        return self._batch(images, [images], [labels])


class StandardizedCrops(Pipeline):
    """Crops of photographs, each standardized.

    Training takes the crop from `distort`, evaluation the center. Each crop
    becomes (x - mean) / max(deviation, 1 / sqrt(number of values)), over all
    its pixels and channels.

    As in the reference, the decoder's target is the standardized image. Its
    values can be negative or exceed 1, while the decoder ends in a sigmoid, so
    that only the part in [0, 1] can be reconstructed.

    Args:
      data: `LabelledImages`.
      crop_size: (height, width).
      distort: function of images uint8 [B, H, W, C], the step and the seed
        that returns float32 [B, *crop_size, C].
      eval_size: int, number of examples to evaluate at most.
    """

    def __init__(self, data, crop_size, distort, eval_size):
        num_examples = min(eval_size, len(data))
        super().__init__(ImageTensors(data), crop_size, 1, num_examples)
        self._crop_size = crop_size
        self._offset = (0, 0)
        self._distort = distort

    def _training_batch(self, step, batch_size, seed):
        indices = self.training_indices(step, batch_size, seed)
        images, labels = self._source.take(indices)
        return self._standardized(self._distort(images, step, seed), labels)

    def _evaluation_batch(self, indices):
        images, labels = self._source.take(indices)
        crops = central_crop(images, self._crop_size, self._offset)
        return self._standardized(tf.cast(crops, tf.float32), labels)

    def moved(self, offset):
        """The same images; tests crop `offset` pixels down and right."""
        other = copy.copy(self)
        other._offset = offset
        return other

    def _standardized(self, crops, labels):
        images = tf.image.per_image_standardization(crops)
        return self._batch(images, [images], [labels])
