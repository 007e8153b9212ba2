"""The networks of J. Su's experiment against explicit NumPy."""

import numpy as np
import pytest

from input_data import keys
from testing import numpy_oracle
from testing.gradients import to_numpy
from testing.small_models import small_model

RNG = np.random.default_rng(23)


def convolved(images, weights):
    """The four convolutions: kernels and biases in turn."""
    hidden = images
    for number in range(4):
        if number == 2:
            height, width = (n // 2 * 2 for n in hidden.shape[1:3])
            hidden = hidden[:, :height, :width]  # an odd one is dropped
            hidden = sum(
                hidden[:, row::2, column::2] / 4
                for row in (0, 1)
                for column in (0, 1)
            )
        kernel, bias = weights[2 * number : 2 * number + 2]
        hidden = numpy_oracle.convolution(hidden, kernel, 1, "VALID") + bias
        hidden = np.maximum(hidden, 0)
    return hidden


def random_weights(model):
    return [RNG.normal(size=w.shape) * 0.3 for w in model.weights]


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
    model = small_model(
        "shared_capsule", keys.ImageShape(*size, 2, 3), **hparams
    )
    is_shared = model.row.fits_any_size(model.hparams)
    other = small_model("shared_capsule")
    weights = random_weights(other if is_shared else model)
    model.set_weights(weights)
    images = RNG.uniform(size=(2, *size, 2))
    features = convolved(images, weights).reshape(2, -1, 6)
    expected = numpy_oracle.capsule(
        features,
        np.broadcast_to(weights[-1], (2, *weights[-1].shape)),
        np.zeros((2, 3, 5)),
        *(hparams["routing"], False, *rule),
        squash_constant=0.5,
        squash_epsilon=1e-7,
    )
    outputs = to_numpy(model({keys.IMAGES: images.astype("float32")}))
    np.testing.assert_allclose(outputs[keys.CAPSULES], expected, atol=2e-5)
    np.testing.assert_allclose(
        outputs[keys.LOGITS], np.linalg.norm(expected, axis=-1), atol=2e-5
    )


@pytest.mark.parametrize("size", [(14, 17), (19, 16)])
def test_pooling_equals_numpy_at_any_size(size):
    weights = random_weights(small_model("pooling"))
    model = small_model("pooling", keys.ImageShape(*size, 2, 3))
    model.set_weights(weights)
    images = RNG.uniform(size=(2, *size, 2))
    pooled = convolved(images, weights).mean(axis=(1, 2))
    hidden = np.maximum(pooled @ weights[8] + weights[9], 0)
    expected = 1 / (1 + np.exp(-(hidden @ weights[10] + weights[11])))
    outputs = to_numpy(model({keys.IMAGES: images.astype("float32")}))
    np.testing.assert_allclose(outputs[keys.LOGITS], expected, 1e-4, 1e-6)
