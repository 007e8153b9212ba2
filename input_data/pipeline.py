"""Pipelines whose every batch is a pure function of the seed and the step."""

import abc
import contextlib

import tensorflow as tf

from common.errors import UserError
from input_data import features as keys
from input_data.randomness import shuffled_indices


class Pipeline(abc.ABC):
    """One split of a data set, as batches under the feature contract.

    Attributes:
      spec: `features.Spec`.
      num_images: int, the images (or stored pairs) that training draws from.
      split_seed: int, the seed that decided which images are for training
        and which for evaluation; None if no seed does.
      class_names: list of strings, or None if the classes are numbers.
    """

    split_seed = None
    class_names = None

    def __init__(self, spec, num_images):
        self.spec = spec
        self.num_images = num_images
        self._user_error = None

    @contextlib.contextmanager
    def user_errors(self):
        """A context for using batches, which raises `UserError` as such.

        tf.data turns what a Python function raises into errors of its own.

        Raises:
          UserError: the one that a function of `_in_python` raised.
        """
        try:
            yield
        except tf.errors.OpError:
            if self._user_error is None:
                raise
            raise self._user_error from None

    def _in_python(self, function, inputs, types):
        """The outputs of a Python function of eager tensors, inside tf.data.

        Args:
          function: callable, may raise `UserError`: see `user_errors`.
          inputs: list of tensors.
          types: list of the types of its outputs.
        """

        def call(*values):
            try:
                return function(*values)
            except UserError as error:
                self._user_error = error
                raise

        return tf.py_function(call, inputs, types)

    def training_batches(self, batch_size, seed, start, stop):
        """Shuffled, augmented batches of the training steps [start, stop).

        Step k's batch depends on `seed` and k alone, so that a training that
        starts at step k sees what an uninterrupted one would.

        Args:
          batch_size: int.
          seed: int >= 0.
          start: int, the first step.
          stop: int, the step after the last.

        Returns:
          `tf.data.Dataset` of stop - start batches (x, y).
        """
        return self._dataset(
            range(start, stop),
            lambda step: self._training_batch(step, batch_size, seed),
            batch_size,
        )

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
            tf.cast(step, tf.int64), batch_size, self.num_images, seed
        )

    def evaluation_batches(self, batch_size):
        """Every example once and in a fixed order; the last batch may be less.

        Args:
          batch_size: int.

        Returns:
          `tf.data.Dataset` of batches (x, y).
        """
        num_examples = self.spec.num_examples
        return self._dataset(
            range(-(-num_examples // batch_size)),
            lambda step: self._evaluation_batch(
                tf.range(
                    step * batch_size,
                    tf.minimum((step + 1) * batch_size, num_examples),
                )
            ),
            None if num_examples % batch_size else batch_size,
        )

    def _dataset(self, steps, make_batch, batch_size):
        dataset = tf.data.Dataset.range(steps.start, steps.stop)
        dataset = dataset.map(
            lambda step: set_shapes(make_batch(step), batch_size, self.spec),
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )
        return dataset.prefetch(tf.data.AUTOTUNE)

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


def set_shapes(batch, batch_size, spec):
    """States the static shapes that TensorFlow cannot infer."""
    x, y = batch
    shape = spec.shape
    image_shape = (batch_size, shape.height, shape.width, shape.depth)
    for tensors in (x, y):
        for name, tensor in tensors.items():
            if name in (keys.IMAGES, *keys.RECONS_BY_TARGET):
                tensors[name] = tf.ensure_shape(tensor, image_shape)
            elif name in keys.LABEL_BY_TARGET:
                tensors[name] = tf.ensure_shape(tensor, (batch_size,))
            else:
                tensors[name] = tf.ensure_shape(
                    tensor, (batch_size, shape.num_classes)
                )
    return x, y
