import keras
import numpy as np
import pytest
from keras import ops

import layers
from testing.gradients import value_and_gradients

RNG = np.random.default_rng(13)
CAPSULES = RNG.normal(size=(3, 4, 5)).astype("float32")
LABELS = np.array([2, 0, 3], "int32")


def loops(capsules, label, weights):
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


def test_mask_keeps_the_labelled_capsule_alone():
    masked = ops.convert_to_numpy(layers.mask_capsules(CAPSULES, LABELS))
    for example, label in enumerate(LABELS):
        for capsule in range(4):
            expected = CAPSULES[example, capsule] * (capsule == label)
            np.testing.assert_array_equal(masked[example, capsule], expected)


def test_decoder_equals_loops():
    layer = layers.Reconstruction(2, 3, 2)
    out = ops.convert_to_numpy(layer(CAPSULES, LABELS))
    assert out.shape == (3, 2, 3, 2)
    weights = [ops.convert_to_numpy(w) for w in layer.weights]
    assert [w.shape for w in weights] == [
        (20, 512),
        (512,),
        (512, 1024),
        (1024,),
        (1024, 12),
        (12,),
    ]
    for example, label in enumerate(LABELS):
        np.testing.assert_allclose(
            out[example].reshape(-1),
            loops(CAPSULES[example], label, weights),
            atol=1e-5,
        )


def test_gradient_reaches_the_labelled_capsule_alone():
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


def test_decoder_survives_saving(tmp_path):
    capsules = keras.Input((4, 5))
    labels = keras.Input((), dtype="int32")
    decoder = layers.Reconstruction(2, 3, 1)
    model = keras.Model([capsules, labels], decoder(capsules, labels))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(
        ops.convert_to_numpy(loaded([CAPSULES, LABELS])),
        ops.convert_to_numpy(model([CAPSULES, LABELS])),
    )


def test_decoder_refuses_wrong_input():
    with pytest.raises(ValueError, match="batch, capsules, atoms"):
        layers.Reconstruction(2, 3, 1).build((None, 20))


def test_decoder_refuses_an_image_without_pixels():
    with pytest.raises(ValueError, match="height must be a positive"):
        layers.Reconstruction(0, 3, 1)
