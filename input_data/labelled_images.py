"""Pipelines over labelled images in memory: one by one, and in pairs."""

import dataclasses

import numpy as np
import tensorflow as tf

from errors import UserError
from input_data import features as keys
from input_data.pipeline import (
    Pipeline,
    single_target_batch,
    two_target_batch,
)
from input_data.randomness import (
    Stream,
    random_offsets,
    shuffled_indices,
    step_seed,
)
from input_data.shifting import pad_images, shift_images, unit_range

# The reference's MNIST records: training digits shifted by up to 2 pixels.
SINGLE_SHIFT = 2
# The paper's section 6: digits on 36x36, shifted by up to 4 pixels.
PAIR_PAD = 4
PAIR_SHIFT = 4


@dataclasses.dataclass(frozen=True)
class LabelledImages:
    """Images of one object each, and their classes.

    Attributes:
      images: uint8 array [N, H, W, C].
      labels: integer array [N], in [0, num_classes).
      num_classes: int.
    """

    images: np.ndarray
    labels: np.ndarray
    num_classes: int

    def __getitem__(self, part):
        """The images of a slice, as `LabelledImages`."""
        return LabelledImages(
            self.images[part], self.labels[part], self.num_classes
        )

    def __len__(self):
        return len(self.images)


def make_pipeline(data, options):
    """The pipeline of labelled images for the number of targets.

    Args:
      data: `LabelledImages`.
      options: `registry.Options`. With two targets `eval_size` may be any
        number of pairs; else at most the images there are count.

    Returns:
      `Pipeline`.

    Raises:
      UserError: for two targets, if all images are of one class.
    """
    if options.num_targets == 1:
        return ShiftedImages(data, options.eval_size)
    return OverlappingPairs(data, options.seed, options.eval_size)


class _InMemoryPipeline(Pipeline):
    """Holds the arrays where tf.data reads them."""

    def __init__(self, data, spec):
        super().__init__(spec)
        self._num_images = len(data)
        self._num_classes = data.num_classes
        with tf.device("CPU:0"):
            self._images = tf.constant(data.images, tf.uint8)
            self._labels = tf.constant(data.labels, tf.int32)

    def _take(self, indices):
        """Images uint8 [B, H, W, C] and labels int32 [B] at `indices`."""
        return tf.gather(self._images, indices), tf.gather(
            self._labels, indices
        )


class ShiftedImages(_InMemoryPipeline):
    """Images of one object; in training shifted by up to 2 pixels.

    Every training image moves by a row and a column offset, each uniform in
    [-2, 2]: the distribution of the reference's 25 copies of each image.
    """

    def __init__(self, data, eval_size):
        spec = keys.Spec(
            keys.ImageShape(*data.images.shape[1:], data.num_classes),
            num_targets=1,
            num_examples=min(eval_size, len(data)),
        )
        super().__init__(data, spec)

    def _training_batch(self, step, batch_size, seed):
        images, labels = self._take(
            shuffled_indices(step, batch_size, self._num_images, seed)
        )
        offsets = random_offsets(
            step_seed(seed, Stream.SHIFT, step), batch_size, SINGLE_SHIFT
        )
        shifted = shift_images(images, offsets, SINGLE_SHIFT)
        return single_target_batch(
            unit_range(shifted), labels, self._num_classes
        )

    def _evaluation_batch(self, indices):
        images, labels = self._take(indices)
        return single_target_batch(
            unit_range(images), labels, self._num_classes
        )


class OverlappingPairs(_InMemoryPipeline):
    """MultiMNIST on the fly: two overlapping objects of different classes.

    Each image is padded by 4 pixels on every side and shifted by up to 4; the
    two are merged by min(255, a + b) (the paper's section 6). In training the
    first of a pair comes from a shuffled pass over the images and the second
    is uniform among those of other classes. The pairs for evaluation are
    fixed by the seed, and each image is the first of about as many.

    Raises:
      UserError: if all images are of one class.
    """

    def __init__(self, data, seed, eval_size):
        height, width, depth = data.images.shape[1:]
        spec = keys.Spec(
            keys.ImageShape(
                height + 2 * PAIR_PAD,
                width + 2 * PAIR_PAD,
                depth,
                data.num_classes,
            ),
            num_targets=2,
            num_examples=eval_size,
        )
        # Images of one class stand together, so that the images of all other
        # classes are one range with a gap.
        order = np.argsort(data.labels, kind="stable")
        counts = np.bincount(data.labels, minlength=data.num_classes)
        if counts.max() == len(data):
            raise UserError("pairs need images of at least two classes")
        super().__init__(data[order], spec)
        self._counts = tf.constant(counts, tf.int64)
        self._starts = tf.constant(np.cumsum(counts) - counts, tf.int64)
        # Where the image that was at each place before the sort is now.
        self._place = tf.constant(np.argsort(order), tf.int64)
        draw_seed = step_seed(seed, Stream.EVALUATION, 0)
        self._eval_partners = tf.random.stateless_uniform(
            (eval_size,), draw_seed, dtype=tf.float64
        )
        self._eval_offsets = [
            random_offsets(draw_seed + target, eval_size, PAIR_SHIFT)
            for target in (1, 2)
        ]

    def _training_batch(self, step, batch_size, seed):
        first = shuffled_indices(step, batch_size, self._num_images, seed)
        partner_draws = tf.random.stateless_uniform(
            (batch_size,),
            step_seed(seed, Stream.PARTNER, step),
            dtype=tf.float64,
        )
        offset_seed = step_seed(seed, Stream.SHIFT, step)
        offsets = [
            random_offsets(offset_seed + target, batch_size, PAIR_SHIFT)
            for target in (0, 1)
        ]
        return self._pair_batch(first, partner_draws, offsets)

    def _evaluation_batch(self, indices):
        return self._pair_batch(
            indices % self._num_images,
            tf.gather(self._eval_partners, indices),
            [tf.gather(offsets, indices) for offsets in self._eval_offsets],
        )

    def _pair_batch(self, first, partner_draws, offsets):
        """Merges images with partners of other classes.

        Args:
          first: int64 [B], images by their place before the sort.
          partner_draws: float64 [B], uniform in [0, 1), one for each partner.
          offsets: pair of int32 [B, 2], how far each of the two moves.
        """
        first = tf.gather(self._place, first)
        second = self._partners(first, partner_draws)
        shifted, labels = [], []
        for indices, offset in zip((first, second), offsets, strict=True):
            images, label = self._take(indices)
            padded = pad_images(images, PAIR_PAD)
            shifted.append(shift_images(padded, offset, PAIR_SHIFT))
            labels.append(label)
        merged = tf.minimum(
            tf.cast(shifted[0], tf.int32) + tf.cast(shifted[1], tf.int32), 255
        )
        return two_target_batch(
            unit_range(merged),
            [unit_range(images) for images in shifted],
            labels,
            self._num_classes,
        )

    def _partners(self, first, draws):
        """Images of other classes than `first`, each equally likely."""
        label = tf.gather(self._labels, first)
        count = tf.gather(self._counts, label)
        start = tf.gather(self._starts, label)
        others = tf.cast(self._num_images - count, tf.float64)
        rank = tf.cast(draws * others, tf.int64)  # among the other classes
        return tf.where(rank < start, rank, rank + count)
