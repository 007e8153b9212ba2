"""Networks of models against explicit NumPy."""

import numpy as np
import pytest
from keras import ops

from input_data import keys
from input_data.keys import ImageShape
from layers.networks.efficient_capsule import layout
from models.table import MODELS
from testing.gradients import to_numpy
from testing.small_models import small_model

RNG = np.random.default_rng(2)


@pytest.mark.parametrize(
    ("size", "first", "strides", "kernel"),
    [  # MNIST, MultiMNIST, smallNORB, another
        *((28, 5, (1, 1, 1, 2), 9), (36, 5, (1, 1, 2, 2), 5)),
        *((48, 7, (2, 1, 1, 2), 8), (96, 7, (2, 2, 2, 2), 4)),
    ],
)
def test_layout_of_the_published_sizes(size, first, strides, kernel):
    expected = (first, 3, 3, 3), strides, (kernel, kernel)
    assert layout(size, size) == expected


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("merge", ["equal", "random", "ones"])
def test_merged_branches_equal_loops(merge, training):
    model = small_model("homogeneous_capsule", merge=merge)
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


@pytest.mark.parametrize(
    ("step", "margin"), [(0, 0.2), (5, 0.55), (10, 0.9), (None, 0.9)]
)
def test_the_loss_sees_the_step(step, margin):
    row = MODELS["matrix_capsule"]
    labels, logits = np.eye(2)[[0, 1]], np.array([[0.6, 0.5], [0.7, 0.3]])
    lead = np.array([0.1, -0.4])
    steps = None if step is None else np.full(2, step, "int64")
    loss = row.loss(labels, logits, steps, row.hparams(margin_steps=10))
    expected = np.maximum(0, margin - lead) ** 2
    np.testing.assert_allclose(loss, expected, rtol=1e-5)


@pytest.mark.parametrize("name", ["pooling", "shared_capsule"])
def test_weights_fit_images_of_any_size(name):
    one, other = (small_model(name, ImageShape(n, 17, 2, 3)) for n in (14, 19))
    assert one.row.fits_any_size(one.hparams)
    other.set_weights(one.get_weights())
    images = RNG.uniform(size=(2, 19, 17, 2)).astype("float32")
    logits = to_numpy(other({keys.IMAGES: images})[keys.LOGITS])
    assert np.ptp(logits, axis=0).min() > 0
