import numpy as np
import pytest
import tensorflow as tf

from input_data.pipeline import shuffled_indices


@pytest.mark.parametrize(
    ("num_examples", "batch_size"), [(50, 8), (50, 50), (5, 16), (1, 4), (7, 1)]
)
def test_every_epoch_takes_every_example_once(num_examples, batch_size):
    steps = -(-3 * num_examples // batch_size)
    taken = np.concatenate(
        [
            shuffled_indices(
                tf.constant(step, tf.int64), batch_size, num_examples, seed=2
            ).numpy()
            for step in range(steps)
        ]
    )
    epochs = [
        taken[n * num_examples : (n + 1) * num_examples] for n in range(3)
    ]
    for epoch in epochs:
        np.testing.assert_array_equal(np.sort(epoch), np.arange(num_examples))
    if num_examples >= 50:
        assert (epochs[0] != epochs[1]).any()
        assert (epochs[0] != np.arange(num_examples)).any()
