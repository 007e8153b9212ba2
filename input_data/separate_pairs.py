"""Pairs of images put together without overlap: a test of transfer.

A network that was trained on images of one object is to find both of two. The
experiment is J. Su's (https://kexue.fm/archives/4819, 2018), whose code puts
one digit below the other.
"""

import numpy as np
import tensorflow as tf

from input_data import features as keys
from input_data.pipeline import Pipeline
from input_data.randomness import Stream, step_seed
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
