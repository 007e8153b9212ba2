"""Pipelines whose batches are pure functions of the seed and the step."""

import contextlib
import enum
import os

import numpy as np
import tensorflow as tf

from common.errors import UserError
from input_data import features as keys
from input_data.stored import StoredRows, digest


class Stream(enum.IntEnum):
    """Purposes of random numbers; each purpose has its own stream."""

    ORDER = 0
    SHIFT = 1
    PARTNER = 2
    EVALUATION = 3
    CROP = 4
    ROTATION = 5
    FLIP = 6
    BRIGHTNESS = 7
    CONTRAST = 8
    AUGMENTATION = 9
    VIEW = 10
    RESIZED_CROP = 11


def step_seed(seed, stream, step):
    """The seed, int64 [2], of one step's stateless random operations."""
    base = tf.constant([seed, int(stream)], tf.int64)
    return tf.random.experimental.stateless_fold_in(base, step)


def shuffled_indices(step, batch_size, num_examples, seed):
    """The indices of the examples of a training step.

    Every epoch takes all examples in a new random order. A batch may end one
    epoch and begin the next. Returns int64 [batch_size] from 0 to
    num_examples - 1.
    """
    positions = step * batch_size + tf.range(batch_size, dtype=tf.int64)
    epochs = positions // num_examples
    places = positions % num_examples
    # One call per epoch: `index_shuffle` has one seed for all its indices.
    indices = places
    for number in range((batch_size - 2) // num_examples + 2):
        epoch = epochs[0] + number
        shuffled = tf.random.experimental.index_shuffle(
            places,
            seed=step_seed(seed, Stream.ORDER, epoch),
            max_index=num_examples - 1,
        )
        indices = tf.where(epochs == epoch, shuffled, indices)
    return indices


def random_offsets(seed, batch_size, max_shift):
    """Row and column offsets, int32 [B, 2], in [-max_shift, max_shift]."""
    shape, limits = (batch_size, 2), (-max_shift, max_shift + 1)
    return tf.random.stateless_uniform(shape, seed, *limits, tf.int32)


class ImageSource:
    """The images and labels of `LabeledImages` for a `Pipeline`.

    Arrays become tensors; `StoredRows` are read when they are taken.
    """

    error = None

    def __init__(self, data):
        self.images = _tensor(data.images, tf.uint8)
        self.labels = _tensor(data.labels, tf.int32)
        self.shape = tuple(data.images.shape[1:])
        self.num_classes = data.num_classes
        self.class_names = data.class_names
        self.fingerprints = data.fingerprints

    def __len__(self):
        return len(self.images)

    def take(self, indices):
        """Images uint8 [B, H, W, C] and labels int32 [B, ...] at `indices`."""
        images = self._take(self.images, indices, tf.uint8)
        return images, self.take_labels(indices)

    def take_labels(self, indices):
        return self._take(self.labels, indices, tf.int32)

    def _take(self, rows, indices, dtype):
        if not isinstance(rows, StoredRows):
            return tf.gather(rows, indices)

        def read(indices):
            return np.asarray(rows[indices], dtype.as_numpy_dtype)

        return read_in_graph(self, read, indices, dtype, rows.shape[1:])

    def description(self):
        """A digest of all that the images depend on."""
        if isinstance(self.images, StoredRows):
            return self.images.description()
        return digest(self.images.numpy())


def read_in_graph(source, read, indices, dtype, shape):
    """`read(indices)`, an array [B, *shape], in a TensorFlow graph.

    A UserError becomes the `error` of `source`, see `Pipeline.user_errors`.
    """

    def read_or_fail(indices):
        try:
            return read(indices)
        except UserError as error:
            source.error = error
            raise

    values = tf.numpy_function(read_or_fail, [indices], dtype)
    values.set_shape((*indices.shape, *shape))
    return values


def _tensor(array, dtype):
    return array if isinstance(array, StoredRows) else tf.constant(array, dtype)


class Pipeline:
    """One split of a data set, as batches that the module `features` describes.

    A subclass defines `training_batch` and `evaluation_batch`. Both return a
    batch (x, y). Their argument `indices`, int64 [B], selects images or pairs.

    `source` holds the stored images, for example an `ImageSource`;
    `source.error` is the `UserError` that stopped reading, or None. `size` is
    the network's input size (height, width). The other arguments become
    attributes of `spec`, a `features.Spec`.
    """

    def __init__(self, source, size, num_targets, num_examples, **spec):
        shape = keys.ImageShape(*size, source.shape[-1], source.num_classes)
        numbers = num_targets, num_examples, len(source)
        spec["split_fingerprints"] = source.fingerprints
        self.spec = keys.Spec(shape, *numbers, source.class_names, **spec)
        self._source, self._size = source, size

    @property
    def source(self):
        return self._source

    def description(self):
        """A text that differs if training images of a seed differ."""
        return os.urandom(16).hex()  # what they depend on is not known

    def training_batches(self, batch_size, seed, start, stop):
        """Shuffled, augmented batches of the steps from `start` to `stop` - 1.

        A batch depends only on `seed` and its step, so that a resumed training
        sees the same batches as an uninterrupted one. Returns a
        `tf.data.Dataset`; iterate over it in the context `user_errors`.
        """

        def make_batch(step):
            num_images = self.spec.num_images
            indices = shuffled_indices(step, batch_size, num_images, seed)
            x, y = self.training_batch(indices, step, seed)
            return {**x, keys.STEP: tf.fill([batch_size], step)}, y

        return _map(tf.data.Dataset.range(start, stop), make_batch)

    def evaluation_batches(self, batch_size, stop=-1):
        """Yields batches (x, y) of NumPy arrays; the last one may be smaller.

        The batches contain the first `stop` examples (-1: all), in fixed order.
        """
        indices = tf.data.Dataset.range(self.spec.num_examples).take(stop)
        batches = _map(indices.batch(batch_size), self.evaluation_batch)
        with self.user_errors():
            yield from batches.as_numpy_iterator()

    def evaluation_images(self, numbers):
        """The images [B, H, W, C] of the examples `numbers`, as an array."""
        numbers = tf.constant(numbers, tf.int64)
        batches = tf.data.Dataset.from_tensors(numbers)
        with self.user_errors():
            batches = _map(batches, self.evaluation_batch).as_numpy_iterator()
            return next(batches)[0][keys.IMAGES]

    @contextlib.contextmanager
    def user_errors(self):
        """A context in which the source's `error`, if any, replaces OpError."""
        try:
            yield
        except tf.errors.OpError:
            if self._source.error is None:
                raise
            raise self._source.error from None

    def _batch(self, images, targets, labels):
        """Combines images [B, H, W, C] and lists by target to a batch (x, y).

        `targets` are float32 [B, H, W, C], each object alone; `labels` are
        int32 [B], or [B, classes], k-hot.
        """
        num_classes = self.spec.shape.num_classes
        # With one target, zip leaves out the names of the second.
        x = dict(zip(keys.LABEL_BY_TARGET, labels, strict=False))
        y = dict(zip(keys.RECONS_BY_TARGET, targets, strict=False))
        if labels[0].shape.rank == 1:
            labels = [tf.one_hot(label, num_classes) for label in labels]
        y[keys.LOGITS] = tf.cast(sum(labels), tf.float32)
        return {keys.IMAGES: images, **x}, y


def _map(dataset, function):
    autotune = tf.data.AUTOTUNE
    return dataset.map(function, autotune).prefetch(autotune)
