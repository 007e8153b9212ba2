"""Pipelines whose every batch is a pure function of the seed and the step."""

import abc
import contextlib

import tensorflow as tf

from input_data import features as keys
from input_data.randomness import shuffled_indices


class Pipeline(abc.ABC):
    """One split of a data set, as batches under the feature contract.

    Args:
      spec: `features.Spec`.
      source: where images come from, such as `labelled_images.ImageTensors`.
        Its `error` is the `UserError` that ended reading, or None.

    Attributes:
      spec: `features.Spec`.
    """

    def __init__(self, spec, source):
        self.spec = spec
        self._source = source

    def training_batches(self, batch_size, seed, start, stop):
        """Shuffled, augmented batches of the training steps [start, stop).

        Step k's batch depends on `seed` and k alone, so that a training that
        starts at step k sees what an uninterrupted one would. Whoever goes
        through the batches does so in the context `user_errors`.

        Args:
          batch_size: int.
          seed: int >= 0.
          start: int, the first step.
          stop: int, the step after the last.

        Returns:
          `tf.data.Dataset` of stop - start batches (x, y).
        """

        def make_batch(step):
            x, y = self._training_batch(step, batch_size, seed)
            return {**x, keys.STEP: tf.fill([batch_size], step)}, y

        return self._dataset(range(start, stop), make_batch, batch_size)

    def training_indices(self, step, batch_size, seed):
        """Which images a training step takes: with two targets, the first.

        Args:
          step: int or scalar int64 tensor.
          batch_size: int.
          seed: int.

        Returns:
          int64 tensor [batch_size] of values in [0, num_images).
        """
        return shuffled_indices(
            tf.cast(step, tf.int64), batch_size, self.spec.num_images, seed
        )

    def evaluation_batches(self, batch_size, stop=None):
        """Every example once and in a fixed order; the last batch may be less.

        Args:
          batch_size: int.
          stop: int, the example after the last; by default all are seen.

        Yields:
          Batches (x, y) of NumPy arrays.

        Raises:
          UserError: if files turn out to be damaged.
        """
        num_examples = self.spec.num_examples
        stop = num_examples if stop is None else min(stop, num_examples)
        batches = self._dataset(
            range(-(-stop // batch_size)),
            lambda step: self._evaluation_batch(
                tf.range(
                    step * batch_size,
                    tf.minimum((step + 1) * batch_size, stop),
                )
            ),
            None if stop % batch_size else batch_size,
        )
        with self.user_errors():
            yield from batches.as_numpy_iterator()

    @contextlib.contextmanager
    def user_errors(self):
        """A context for going through training batches.

        tf.data turns what a Python function raises into errors of its own.

        Raises:
          UserError: the one that ended reading.
        """
        try:
            yield
        except tf.errors.OpError:
            if self._source.error is None:
                raise
            raise self._source.error from None

    def _dataset(self, steps, make_batch, batch_size):
        dataset = tf.data.Dataset.range(steps.start, steps.stop)
        dataset = dataset.map(
            lambda step: self._with_shapes(make_batch(step), batch_size),
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )
        return dataset.prefetch(tf.data.AUTOTUNE)

    def _with_shapes(self, batch, batch_size):
        """States the static shapes, which TensorFlow cannot always infer."""
        shape = self.spec.shape
        rest_by_rank = {
            1: (),
            2: (shape.num_classes,),
            4: (shape.height, shape.width, shape.depth),
        }
        return tf.nest.map_structure(
            lambda tensor: tf.ensure_shape(
                tensor, (batch_size, *rest_by_rank[tensor.shape.rank])
            ),
            batch,
        )

    @abc.abstractmethod
    def _training_batch(self, step, batch_size, seed):
        """The batch (x, y) of a training step, a scalar int64 tensor."""

    @abc.abstractmethod
    def _evaluation_batch(self, indices):
        """The batch (x, y) of the examples at `indices`, int64 [B]."""


def single_target_batch(images, labels, num_classes):
    """(x, y) of images that show one object: the image is its own target.

    Args:
      images: float32 [B, H, W, C].
      labels: int32 [B].
      num_classes: int.
    """
    x = {keys.IMAGES: images, keys.RECONS_LABEL: labels}
    y = {keys.LOGITS: tf.one_hot(labels, num_classes), keys.RECONS: images}
    return x, y


def two_target_batch(merged, images, labels, num_classes):
    """(x, y) of images that show two objects of different classes.

    Args:
      merged: float32 [B, H, W, C], both objects.
      images: pair of float32 [B, H, W, C], each object alone.
      labels: pair of int32 [B].
      num_classes: int.
    """
    x = {
        keys.IMAGES: merged,
        keys.RECONS_LABEL: labels[0],
        keys.SPARE_LABEL: labels[1],
    }
    y = {
        keys.LOGITS: tf.one_hot(labels[0], num_classes)
        + tf.one_hot(labels[1], num_classes),
        keys.RECONS: images[0],
        keys.SPARE_RECONS: images[1],
    }
    return x, y
