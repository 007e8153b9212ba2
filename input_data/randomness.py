"""Random numbers and orders that depend on a seed and a step alone."""

import enum

import tensorflow as tf


class Stream(enum.IntEnum):
    """Uses of random numbers; each has a stream of its own."""

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


def step_seed(seed, stream, step):
    """The seed, int64 [2], of stateless random operations of one step."""
    base = tf.constant([seed, int(stream)], tf.int64)
    return tf.random.experimental.stateless_fold_in(base, step)


def shuffled_indices(step, batch_size, num_examples, seed):
    """The examples of a training step.

    Every epoch takes all examples in a new random order. A batch may end one
    epoch and begin the next.

    Args:
      step: scalar int64 tensor.
      batch_size: int.
      num_examples: int.
      seed: int.

    Returns:
      int64 tensor [batch_size] of values in [0, num_examples).
    """
    positions = step * batch_size + tf.range(batch_size, dtype=tf.int64)
    epochs = positions // num_examples
    places = positions % num_examples
    # `index_shuffle` takes one seed for all its indices: one call per epoch.
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
    return tf.random.stateless_uniform(
        (batch_size, 2), seed, -max_shift, max_shift + 1, tf.int32
    )
