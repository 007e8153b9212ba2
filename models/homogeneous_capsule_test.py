import numpy as np
import pytest
from keras import ops

import layers
from input_data import keys
from testing.small_models import SMALL, example_batch, small_model

NAME = "homogeneous_capsule"
RNG = np.random.default_rng(5)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("merge", ["equal", "random", "ones"])
def test_merged_branches_equal_loops(merge, training):
    model = small_model(NAME, merge=merge)
    w, beta = np.array([0.5, -2.0]), RNG.normal(size=2)
    mean, variance = RNG.uniform(0.5, 2, size=(2, 2))
    merge_lengths = model.network.get_layer("merge")
    weigh, norm = merge_lengths.layers
    weigh.set_weights([w])
    norm.set_weights([beta, mean, variance])
    assert len(merge_lengths.trainable_weights) == 1 + (merge != "equal")
    lengths = RNG.uniform(0, 2, size=(4, 3, 2))
    expected = np.zeros((4, 3))
    for k in range(2):
        z = w[k] * lengths[..., k]
        center, spread = (
            (z.mean(), z.var()) if training else (mean[k], variance[k])
        )
        expected += (z - center) / np.sqrt(spread + 1e-3) + beta[k]
    merged = merge_lengths(lengths, training=training)
    np.testing.assert_allclose(ops.sum(merged, -1), expected, rtol=1e-4)


def test_the_network_is_its_layers():
    model = small_model(NAME)
    blocks, branches = (
        [model.network.get_layer(f"{kind}{n}") for n in numbers]
        for kind, numbers in (("conv", (1, 2, 3, 4)), ("branch", (1, 4)))
    )
    norms = {block.layers[1].momentum for block in blocks}
    assert norms == {b.momentum for b in branches} == {0.99}
    x, _ = example_batch(SMALL, 1)
    hidden, lengths = 2 * x[keys.IMAGES] - 1, []
    for number, block in enumerate(blocks, 1):
        kernel, beta, *_ = block.get_weights()
        assert np.ptp(beta) == 0
        hidden = ops.nn.conv(hidden, kernel, padding="valid")
        hidden = ops.relu(hidden / np.sqrt(1.001))
        if number in (1, 4):
            capsules = branches[len(lengths)](hidden)
            lengths.append(layers.lengths(capsules))
    outputs = model(x)
    logits = ops.sum(ops.stack(lengths, -1), -1) / np.sqrt(1.001)
    np.testing.assert_allclose(outputs[keys.LOGITS], logits, rtol=1e-4)
    np.testing.assert_allclose(outputs[keys.CAPSULES], capsules, atol=1e-7)
