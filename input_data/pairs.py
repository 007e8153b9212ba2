"""Pipelines of images of two objects, overlapping or next to each other."""

import dataclasses

import numpy as np
import tensorflow as tf

from common.errors import UserError
from input_data import keys
from input_data.pipeline import Pipeline, Stream, random_offsets, step_seed
from input_data.stored import blocks
from input_data.transforms import pad_images, shift_images, unit_range

_AXES = {"below": 1, "beside": 2}  # of [B, H, W, C]


class OverlappingPairs(Pipeline):
    """MultiMNIST made on the fly: two overlapping objects of two classes.

    Two padded and shifted images a, b are merged by min(255, a + b) (section 6
    of the paper). Each image is the first of a pair once in a training epoch.
    The second is drawn uniformly from the images of other classes. The pairs
    for evaluation depend only on the seed.
    """

    def __init__(self, data, config, **spec):
        self._shift, self._pad = config.shift, config.pad
        size = [side + 2 * self._pad for side in data.images.shape[1:3]]
        super().__init__(data, size, 2, config.eval_size, **spec)
        groups = map(tf.constant, group_by_class(data))
        self._order, self._starts, self._counts = groups
        seed = step_seed(config.seed, Stream.EVALUATION, 0)
        self._eval_draws = self._draw(config.eval_size, seed, seed + 1)

    def _draw(self, count, partner_seed, offset_seed):
        """Numbers float64 [count] in [0, 1), and offsets of both objects."""
        uniform = tf.random.stateless_uniform
        seeds = offset_seed, offset_seed + 1
        draws = uniform((count,), partner_seed, dtype=tf.float64)
        offsets = (random_offsets(seed, count, self._shift) for seed in seeds)
        return draws, *offsets

    def training_batch(self, indices, step, seed):
        partner_seed = step_seed(seed, Stream.PARTNER, step)
        offset_seed = step_seed(seed, Stream.SHIFT, step)
        draws = self._draw(indices.shape[0], partner_seed, offset_seed)
        return self._pair_batch(indices, *draws)

    def evaluation_batch(self, indices):
        draws = (tf.gather(draw, indices) for draw in self._eval_draws)
        return self._pair_batch(indices % self.spec.num_images, *draws)

    def _pair_batch(self, first, partner_draws, *offsets):
        pair = first, self._partners(first, partner_draws)
        shifted, labels = [], []
        for indices, offset in zip(pair, offsets, strict=True):
            images, label = self.take(indices)
            padded = pad_images(images, self._pad)
            shifted.append(shift_images(padded, offset, self._shift))
            labels.append(label)
        total = sum(tf.cast(images, tf.int32) for images in shifted)
        targets = [unit_range(images) for images in shifted]
        return self._batch(unit_range(tf.minimum(total, 255)), targets, labels)

    def _partners(self, first, draws):
        """Indices of images of other classes, each equally likely."""
        label = self.take_labels(first)
        count = tf.gather(self._counts, label)
        start = tf.gather(self._starts, label)
        num_others = tf.cast(self.spec.num_images - count, tf.float64)
        rank = tf.cast(draws * num_others, tf.int64)  # among other classes
        place = tf.where(rank < start, rank, rank + count)
        return tf.gather(self._order, place)


def group_by_class(data):
    """Image indices sorted by class, int64 [N]; starts and sizes by class."""
    labels = np.concatenate(list(blocks(data.labels)))
    counts = np.bincount(labels, minlength=data.num_classes)
    if counts.max() == len(data):
        raise UserError("pairs need images of at least two classes")
    order = np.argsort(labels, kind="stable")
    return order, np.cumsum(counts) - counts, counts


class SeparatePairs(Pipeline):
    """Two images of different classes, one below or beside the other.

    J. Su (https://kexue.fm/archives/4819, 2018) uses such pairs to test
    networks that were trained on single objects. A random permutation, fixed by
    the seed, gives each image of the `Pipeline` `singles` a partner; pairs of
    one class are left out. In an object's target image the other half is black.
    """

    def __init__(self, singles, config):
        self._singles = singles
        self._axis = _AXES[config.pairs]
        places = tf.data.Dataset.range(singles.spec.num_examples)
        batches = places.batch(100).map(singles.take_labels)
        with singles.user_errors():
            labels = np.concatenate(list(batches.as_numpy_iterator()))
        if labels.ndim > 1:
            raise UserError("--num_targets=2 needs images of one class each")
        seed = step_seed(config.seed, Stream.EVALUATION, 0)
        places = tf.range(len(labels), dtype=tf.int64)
        shuffle = tf.random.experimental.index_shuffle
        second = shuffle(places, seed, max_index=len(labels) - 1).numpy()
        first = np.flatnonzero(labels != labels[second])[: config.eval_size]
        if not len(first):
            raise UserError("pairs need images of at least two classes")
        self._pairs = (first, second[first])
        shape = singles.spec.shape
        size = [shape.height, shape.width]
        size[self._axis - 1] *= 2
        shape = keys.ImageShape(*size, shape.depth, shape.num_classes)
        self.spec = dataclasses.replace(
            singles.spec, shape=shape, num_targets=2, num_examples=len(first)
        )

    def evaluation_batch(self, indices):
        halves, labels = [], []
        for pair in self._pairs:
            x, _ = self._singles.evaluation_batch(tf.gather(pair, indices))
            halves.append(x[keys.IMAGES])
            labels.append(x[keys.RECONS_LABEL])
        first, second = halves
        black = tf.zeros_like(first)
        images, *targets = (
            tf.concat(parts, self._axis)
            for parts in (halves, (first, black), (black, second))
        )
        return self._batch(images, targets, labels)
