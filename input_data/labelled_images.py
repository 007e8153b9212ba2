"""Pipelines over labelled images: one by one, and in pairs."""

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
from input_data.transforms.shifting import (
    pad_images,
    require_possible_shift,
    shift_images,
    unit_range,
)
from old.errors import UserError

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


class OverlappingPairs(Pipeline):
    """MultiMNIST on the fly: two overlapping objects of different classes.

    Each image is padded by `pad` pixels on every side and shifted by up to
    `shift`; the two are merged by min(255, a + b) (the paper's section 6). In
    training the first of a pair comes from a shuffled pass over the images
    and the second is uniform among those of other classes. The pairs for
    evaluation are fixed by the seed, and each image is the first of about as
    many.

    Args:
      data: `LabelledImages`.
      options: `Options` with shift and pad.
      **of_split: what the `Spec` says of how images were divided.

    Raises:
      UserError: if all images are of one class.
    """

    def __init__(self, data, options, **of_split):
        order, starts, counts = group_by_class(data)
        height, width, _ = data.images.shape[1:]
        super().__init__(
            ImageTensors(data),
            (height + 2 * options.pad, width + 2 * options.pad),
            num_targets=2,
            num_examples=options.eval_size,
            **of_split,
        )
        self._shift = options.shift
        self._pad = options.pad
        self._counts = tf.constant(counts, tf.int64)
        self._starts = tf.constant(starts, tf.int64)
        self._order = tf.constant(order, tf.int64)
        draw_seed = step_seed(options.seed, Stream.EVALUATION, 0)
        self._eval_partners = tf.random.stateless_uniform(
            (options.eval_size,), draw_seed, dtype=tf.float64
        )
        self._eval_offsets = [
            random_offsets(draw_seed + target, options.eval_size, self._shift)
            for target in (1, 2)
        ]

    def _training_batch(self, step, batch_size, seed):
        first = self.training_indices(step, batch_size, seed)
        partner_draws = tf.random.stateless_uniform(
            (batch_size,),
            step_seed(seed, Stream.PARTNER, step),
            dtype=tf.float64,
        )
        offset_seed = step_seed(seed, Stream.SHIFT, step)
        offsets = [
            random_offsets(offset_seed + target, batch_size, self._shift)
            for target in (0, 1)
        ]
        return self._pair_batch(first, partner_draws, offsets)

    def _evaluation_batch(self, indices):
        return self._pair_batch(
            indices % self.spec.num_images,
            tf.gather(self._eval_partners, indices),
            [tf.gather(offsets, indices) for offsets in self._eval_offsets],
        )

    def _pair_batch(self, first, partner_draws, offsets):
        """Merges images with partners of other classes.

        Args:
          first: int64 [B], which images.
          partner_draws: float64 [B], uniform in [0, 1), one for each partner.
          offsets: pair of int32 [B, 2], how far each of the two moves.
        """
        second = self._partners(first, partner_draws)
        shifted, labels = [], []
        for indices, offset in zip((first, second), offsets, strict=True):
            images, label = self._source.take(indices)
            padded = pad_images(images, self._pad)
            shifted.append(shift_images(padded, offset, self._shift))
            labels.append(label)
        merged = tf.minimum(
            tf.cast(shifted[0], tf.int32) + tf.cast(shifted[1], tf.int32), 255
        )
        return self._batch(
            unit_range(merged),
            [unit_range(images) for images in shifted],
            labels,
        )

    def _partners(self, first, draws):
        """Images of other classes than `first`, each equally likely."""
        label = tf.gather(self._source.labels, first)
        count = tf.gather(self._counts, label)
        start = tf.gather(self._starts, label)
        others = tf.cast(self.spec.num_images - count, tf.float64)
        rank = tf.cast(draws * others, tf.int64)  # among the other classes
        place = tf.where(rank < start, rank, rank + count)
        return tf.gather(self._order, place)


def group_by_class(data):
    """An order in which images of one class stand together.

    In it the images of all other classes are one range with a gap.

    Args:
      data: `LabelledImages`.

    Returns:
      Tuple of the order, int64 [N], and where in it each class begins and how
      many images it has, both int64 [num_classes].

    Raises:
      UserError: if all images are of one class, so that there are no pairs.
    """
    counts = np.bincount(data.labels, minlength=data.num_classes)
    if counts.max() == len(data):
        raise UserError("pairs need images of at least two classes")
    order = np.argsort(data.labels, kind="stable")
    return order, np.cumsum(counts) - counts, counts
