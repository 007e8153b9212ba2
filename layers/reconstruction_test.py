import numpy as np
import pytest
from keras import ops

import layers
from testing.gradients import value_and_gradients

RNG = np.random.default_rng(13)
CAPSULES = RNG.normal(size=(3, 4, 5)).astype("float32")
LABELS = np.array([2, 0, 3], "int32")


def decode(capsules, label, weights):
    """One example through the decoder, in float64."""
    masked = np.zeros(capsules.shape)
    masked[label] = capsules[label]
    hidden = masked.reshape(-1)
    for number in range(3):
        kernel, bias = weights[2 * number : 2 * number + 2]
        hidden = hidden @ kernel.astype("float64") + bias
        hidden = (
            1 / (1 + np.exp(-hidden)) if number == 2 else hidden * (hidden > 0)
        )
    return hidden


def test_mask_keeps_only_the_labeled_capsule():
    masked = ops.convert_to_numpy(layers.mask_capsules(CAPSULES, LABELS))
    for example, label in enumerate(LABELS):
        for capsule in range(4):
            expected = CAPSULES[example, capsule] * (capsule == label)
            np.testing.assert_array_equal(masked[example, capsule], expected)


@pytest.mark.parametrize("shape", [(), (1,), (2,), (3, 1), (3, 4)])
def test_labels_of_another_shape_are_errors(shape):
    with pytest.raises(ValueError, match="must have the shape"):
        layers.mask_capsules(CAPSULES, np.zeros(shape, "int32"))


@pytest.mark.parametrize("he_normal", [False, True])
def test_decoder_equals_loops(he_normal):
    layer = layers.Reconstruction(2, 3, 2, he_normal)
    out = ops.convert_to_numpy(layer(CAPSULES, LABELS))
    assert out.shape == (3, 2, 3, 2)
    weights = layer.get_weights()
    assert [w.shape for w in weights[::2]] == [
        (20, 512),
        (512, 1024),
        (1024, 12),
    ]
    np.testing.assert_allclose(weights[1], 0.0 if he_normal else 0.1)
    for example, label in enumerate(LABELS):
        np.testing.assert_allclose(
            out[example].reshape(-1),
            decode(CAPSULES[example], label, weights),
            atol=1e-5,
        )


def test_gradient_reaches_only_the_labeled_capsule():
    layer = layers.Reconstruction(2, 3, 1)
    layer(CAPSULES, LABELS)
    _, (gradient,) = value_and_gradients(
        lambda capsules: layer(capsules, LABELS),
        [CAPSULES],
        np.ones((3, 2, 3, 1)),
    )
    for example, label in enumerate(LABELS):
        for capsule in range(4):
            reached = np.abs(gradient[example, capsule]).max() > 0
            assert reached == (capsule == label)
