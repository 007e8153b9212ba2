"""Pairs of images put together without overlap: a test of transfer.

A network that was trained on images of one object is to find both of two. The
experiment is J. Su's (https://kexue.fm/archives/4819, 2018), whose code puts
one digit below the other.
"""

import numpy as np
import tensorflow as tf

from input_data import features as keys
from input_data.images import ImageTensors
from input_data.pipeline import Pipeline
from input_data.randomness import Stream, random_offsets, step_seed
from input_data.transforms.shifting import (
    pad_images,
    shift_images,
    unit_range,
)
from old.errors import UserError

# The axis of [B, H, W, C] along which the second image follows the first.
AXIS = {"below": 1, "beside": 2}
_LABELS_BATCH = 100


class SeparatePairs(Pipeline):
    """Two images of different classes, one below or beside the other.

    The second of image n is image order[n], where the order is a random one
    of all images, by the seed alone; pairs of one class are left out. Images
    are prepared as those of one object are; there is no margin between them.
    The target of each object is the pair with the other one blank.

    Args:
      singles: `Pipeline` of images of one object.
      options: `Options` with pairs, seed and eval_size.

    Raises:
      UserError: if no pair is of two classes, or files are damaged.
    """

    def __init__(self, singles, options):
        self._singles = singles
        self._axis = AXIS[options.pairs]
        labels = np.concatenate(
            [
                x[keys.RECONS_LABEL]
                for x, _ in singles.evaluation_batches(_LABELS_BATCH)
            ]
        )
        second = tf.random.experimental.index_shuffle(
            tf.range(len(labels), dtype=tf.int64),
            seed=step_seed(options.seed, Stream.EVALUATION, 0),
            max_index=len(labels) - 1,
        ).numpy()
        first = np.flatnonzero(labels != labels[second])[: options.eval_size]
        if not len(first):
            raise UserError("pairs need images of at least two classes")
        self._pairs = tf.constant([first, second[first]], tf.int64)
        spec = singles.spec
        size = [spec.shape.height, spec.shape.width]
        size[self._axis - 1] *= 2
        super().__init__(
            singles._source,
            size,
            num_targets=2,
            num_examples=len(first),
            split_seed=spec.split_seed,
            split_fingerprints=spec.split_fingerprints,
        )

    def _training_batch(self, step, batch_size, seed):
        raise NotImplementedError("these pairs are for evaluation")

    def _evaluation_batch(self, indices):
        images, labels = [], []
        for target in (0, 1):
            x, _ = self._singles._evaluation_batch(
                tf.gather(self._pairs[target], indices)
            )
            images.append(x[keys.IMAGES])
            labels.append(x[keys.RECONS_LABEL])
        blank = tf.zeros_like(images[0])
        first, second = images
        return self._batch(
            tf.concat([first, second], self._axis),
            [
                tf.concat([first, blank], self._axis),
                tf.concat([blank, second], self._axis),
            ],
            labels,
        )


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
