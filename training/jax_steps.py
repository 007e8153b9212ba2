"""Several training steps in one call on JAX."""

import warnings

import tensorflow as tf


def stacked(batches, steps):
    """Yields batches of `steps` steps, stacked to [B, steps, ...].

    The first axis is split over the devices.
    """

    def transpose(values):
        return tf.transpose(values, [1, 0, *range(2, values.shape.rank)])

    batches = (
        batches.batch(steps)
        .map(lambda *batch: tf.nest.map_structure(transpose, batch))
        .prefetch(1)
    )
    # After the last step, Keras would warn.
    warnings.filterwarnings("ignore", "Your input ran out of data")
    # Keras would copy the batches of a dataset while the device waits.
    yield from batches.as_numpy_iterator()


def scan_steps(train_step):
    """Makes a `train_step` for [B, steps, ...], with the last step's logs."""
    import jax

    def step(state, batch):
        return train_step(state, batch)[::-1]

    def steps(state, batches):
        batches = jax.tree.map(lambda v: jax.numpy.moveaxis(v, 1, 0), batches)
        state, logs = jax.lax.scan(step, state, batches)
        return jax.tree.map(lambda values: values[-1], logs), state

    return steps
