"""Pipelines whose batches are pure functions of the seed and the step."""

import contextlib
import enum
import functools
import hashlib
import os
import re

import numpy as np
import tensorflow as tf

from common.errors import UserError
from input_data import keys, stored
from input_data.stored import StoredRows


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
    epoch and begin the next. Returns int64 [batch_size].
    """
    positions = step * batch_size + tf.range(batch_size, dtype=tf.int64)
    epochs = positions // num_examples
    places = positions % num_examples
    # One call per epoch: `index_shuffle` has one seed for all its indices.
    shuffle, indices = tf.random.experimental.index_shuffle, places
    for number in range((batch_size - 2) // num_examples + 2):
        epoch = epochs[0] + number
        epoch_seed = step_seed(seed, Stream.ORDER, epoch)
        shuffled = shuffle(places, epoch_seed, max_index=num_examples - 1)
        indices = tf.where(epochs == epoch, shuffled, indices)
    return indices


def random_offsets(seed, batch_size, max_shift):
    """Row and column offsets, int32 [B, 2], in [-max_shift, max_shift]."""
    return tf.random.stateless_uniform(
        (batch_size, 2), seed, -max_shift, max_shift + 1, tf.int32
    )


class Pipeline:
    """One split of a data set, as batches that the module `keys` describes.

    A subclass defines `training_batch` and `evaluation_batch`, which return a
    batch (x, y) of the images or pairs `indices`, int64 [B].

    `data` are `LabeledImages`; small arrays become tensors, others are read
    when they are taken. `size` is the network's input size (height, width). The
    others are attributes of `spec`.
    """

    def __init__(self, data, size, num_targets, num_examples, **spec):
        shape = keys.ImageShape(*size, data.images.shape[-1], data.num_classes)
        numbers = num_targets, num_examples, len(data)
        names = data.class_names
        both = names, names or tuple(map(str, range(data.num_classes)))
        spec["split_fingerprints"] = data.fingerprints
        self.spec = keys.Spec(shape, *numbers, *both, **spec)
        self._size = size
        self._images = _tensor(data.images, tf.uint8)
        self._labels = _tensor(data.labels, tf.int32)
        self.has_labels_in_memory = tf.is_tensor(self._labels)

    def take(self, indices):
        """Stored images uint8 [B, ...] and labels int32 [B, ...]."""
        return taken(self._images, indices, np.uint8), self.take_labels(indices)

    def take_labels(self, indices):
        return taken(self._labels, indices, np.int32)

    def class_counts(self):
        """The number of stored images of each class, int64 [classes]."""
        size = self.spec.shape.num_classes
        counts = np.zeros(size, "int64")
        for rows in stored.blocks(np.arange(self.spec.num_images)):
            labels = np.asarray(self.take_labels(rows))
            if self.spec.num_targets == keys.SEVERAL_LABELS:
                labels = np.nonzero(labels)[1]
            counts += np.bincount(labels.ravel(), minlength=size)
        return counts

    def description(self):
        """A text that differs if training images of a seed differ."""
        return os.urandom(16).hex()  # what they depend on is not known

    def in_pixels(self):
        """This pipeline with evaluation images in [0, 1]."""
        return self

    @staticmethod
    def preprocess(pixels):
        """The network's input for images [B, H, W, C] in [0, 1]: a tensor."""
        return pixels

    def training_batches(self, batch_size, seed, start, stop):
        """Shuffled, augmented batches of the steps from `start` to `stop` - 1.

        A batch depends only on `seed` and its step, also in resumed trainings.
        Returns a `tf.data.Dataset`; iterate over it in `user_errors`.
        """

        def make_batch(step):
            num_images = self.spec.num_images
            indices = shuffled_indices(step, batch_size, num_images, seed)
            x, y = self.training_batch(indices, step, seed)
            return {**x, keys.STEP: tf.fill([batch_size], step)}, y

        return _map(tf.data.Dataset.range(start, stop), make_batch)

    def evaluation_batches(self, batch_size, stop=-1):
        """Yields the first `stop` examples (-1: all) in batches of arrays."""
        indices = tf.data.Dataset.range(self.spec.num_examples).take(stop)
        return self._evaluated(indices.batch(batch_size))

    @functools.cached_property
    def evaluation_digest(self):
        """SHA-256 of the images and labels of an evaluation."""
        sha256 = hashlib.sha256()
        for x, y in self.evaluation_batches(100):
            sha256.update(x[keys.IMAGES].tobytes() + y[keys.LABELS].tobytes())
        return sha256.hexdigest()

    def evaluation_images(self, numbers):
        """The images [B, H, W, C] of the examples `numbers`, as an array."""
        numbers = tf.data.Dataset.from_tensors(tf.constant(numbers, tf.int64))
        ((x, _),) = self._evaluated(numbers)
        return x[keys.IMAGES]

    def _evaluated(self, indices):
        with self.user_errors():
            batches = _map(indices, self.evaluation_batch)
            yield from batches.as_numpy_iterator()

    @contextlib.contextmanager
    def user_errors(self):
        """A context that raises the UserError that `taken` met."""
        try:
            yield
        except tf.errors.OpError as error:
            if found := re.search("UserError: (.*)", error.message):
                raise UserError(found[1]) from None
            raise

    def _batch(self, images, targets, labels):
        """Combines images [B, H, W, C] and lists by target to a batch (x, y).

        `targets` are [B, H, W, C], each object alone; `labels` [B] or k-hot.
        """
        num_classes = self.spec.shape.num_classes
        # With one target, zip leaves out the names of the second.
        x = dict(zip(keys.LABEL_BY_TARGET, labels, strict=False))
        y = dict(zip(keys.RECONS_BY_TARGET, targets, strict=False))
        if labels[0].shape.rank == 1:
            labels = [tf.one_hot(label, num_classes) for label in labels]
        y[keys.LABELS] = tf.cast(sum(labels), tf.float32)
        return {keys.IMAGES: images, **x}, y


def _tensor(array, dtype):
    if isinstance(array, StoredRows) or array.nbytes > stored.MEMORY_BYTES:
        return array
    return tf.constant(array, dtype)


def taken(rows, indices, dtype):
    """The rows at `indices`, also in a graph; errors: see `user_errors`."""
    if tf.is_tensor(rows):
        return tf.gather(rows, indices)

    def read(part):
        return np.asarray(rows[part], dtype)

    values = tf.numpy_function(read, [indices], dtype)
    return tf.ensure_shape(values, (*indices.shape, *rows.shape[1:]))


def _map(dataset, function):
    options = tf.data.Options()
    options.autotune.enabled = False  # its thread delays the end of the program
    batches = dataset.map(function, os.cpu_count()).prefetch(2)
    return batches.with_options(options)
