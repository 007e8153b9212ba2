"""Networks of models against explicit NumPy."""

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from input_data import keys
from layers.networks.efficient_capsule import layout
from models.table import MODELS
from testing import numpy_oracle
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


def computed(name, size, **hparams):
    """Outputs for random images, their features [2, I, 6], and the weights."""
    model = small_model(name, keys.ImageShape(*size, 2, 3), **hparams)
    fits = model.row.fits_any_size(model.hparams)
    of_weights = small_model(name) if fits else model
    weights = [RNG.normal(size=w.shape) * 0.3 for w in of_weights.weights]
    model.set_weights(weights)
    images = hidden = RNG.uniform(size=(2, *size, 2))
    for number in range(4):
        if number == 2:
            hidden = tf.nn.avg_pool2d(hidden, 2, 2, "VALID").numpy()
        kernel, bias = weights[2 * number : 2 * number + 2]
        hidden = numpy_oracle.convolution(hidden, kernel, 1, "VALID") + bias
        hidden = np.maximum(hidden, 0)
    outputs = to_numpy(model({keys.IMAGES: images.astype("float32")}))
    return outputs, hidden.reshape(2, -1, 6), weights


# 14x17 leaves one and two positions; 19x16 leaves three and two.
@pytest.mark.parametrize("size", [(14, 17), (19, 16)])
@pytest.mark.parametrize(
    ("hparams", "rule"),
    [
        ({"routing": 3}, ("replace", "direction")),
        ({"routing": 5, "compare": "squashed"}, ("replace", "squashed")),
        ({"routing": 3, "compare": "squashed", "logits": "add"}, ()),
        ({"routing": 3, "share_weights": False}, ("replace", "direction")),
    ],
)
def test_shared_capsules_equal_numpy_at_any_size(hparams, rule, size):
    outputs, features, weights = computed("shared_capsule", size, **hparams)
    expected = numpy_oracle.capsule(
        features,
        np.broadcast_to(weights[-1], (2, *weights[-1].shape)),
        np.zeros((2, 3, 5)),
        *(hparams["routing"], False, *rule),
        squash_constant=0.5,
        squash_epsilon=1e-7,
    )
    np.testing.assert_allclose(outputs[keys.CAPSULES], expected, atol=2e-5)
    np.testing.assert_allclose(
        outputs[keys.LOGITS], np.linalg.norm(expected, axis=-1), atol=2e-5
    )


@pytest.mark.parametrize("size", [(14, 17), (19, 16)])
def test_pooling_equals_numpy_at_any_size(size):
    outputs, features, weights = computed("pooling", size)
    hidden = np.maximum(features.mean(axis=1) @ weights[8] + weights[9], 0)
    expected = 1 / (1 + np.exp(-(hidden @ weights[10] + weights[11])))
    np.testing.assert_allclose(outputs[keys.LOGITS], expected, 1e-4, 1e-6)
