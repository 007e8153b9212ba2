"""Random numbers and orders that depend on a seed and a step alone."""

import enum

import tensorflow as tf


class Stream(enum.IntEnum):
    """What random numbers are for: no two uses of one pipeline share one."""

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
    """The seed of stateless random operations of one step.

    Args:
      seed: int, the user's.
      stream: `Stream`.
      step: int or scalar int64 tensor.

    Returns:
      int64 tensor [2].
    """
    base = tf.constant([seed, int(stream)], tf.int64)
    return tf.random.experimental.stateless_fold_in(base, step)


def shuffled_indices(step, batch_size, num_examples, seed):
    """Which examples training step `step` takes.

    Endless passes over all examples, each in a new random order; a batch may
    end one pass and begin the next.

    Args:
      step: scalar int64 tensor.
      batch_size: int.
      num_examples: int.
      seed: int, the user's.

    Returns:
      int64 tensor [batch_size] of values in [0, num_examples).
    """
    positions = step * batch_size + tf.range(batch_size, dtype=tf.int64)
    passes = positions // num_examples
    places = positions % num_examples
    # `index_shuffle` takes one seed for all its indices, so that each pass
    # that the batch touches is shuffled on its own.
    indices = places
    touched = (batch_size - 2) // num_examples + 2
    for number in range(touched):
        current = passes[0] + number
        shuffled = tf.random.experimental.index_shuffle(
            places,
            seed=step_seed(seed, Stream.ORDER, current),
            max_index=num_examples - 1,
        )
        indices = tf.where(passes == current, shuffled, indices)
    return indices


def random_offsets(seed, batch_size, max_shift):
    """Row and column offsets, each uniform in [-max_shift, max_shift].

    Args:
      seed: int64 tensor [2].
      batch_size: int.
      max_shift: int >= 0, pixels.

    Returns:
      int32 tensor [batch_size, 2].
    """
    return tf.random.stateless_uniform(
        (batch_size, 2), seed, -max_shift, max_shift + 1, tf.int32
    )
