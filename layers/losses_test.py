import keras
import numpy as np
import pytest
from keras import ops

import layers
from testing import numpy_oracle
from testing.gradients import check_whole_batch, one_by_one, to_numpy

LOSSES = [*layers.CLASSIFICATION_LOSSES.values(), layers.spread_loss]
LABELS = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]], "float32")
LOGITS = np.array([[0.5, 0.3, 0.05], [0.0, 0.95, 0.2]], "float32")


@pytest.mark.parametrize("name", list(layers.CLASSIFICATION_LOSSES))
def test_classification_losses(name):
    loss = layers.CLASSIFICATION_LOSSES[name]
    check_whole_batch(
        lambda x: loss(LABELS, x),
        [np.random.default_rng(3).normal(size=(2, 3))],
        lambda x: numpy_oracle.classification_loss(name, LABELS, x),
    )
    large = loss(LABELS, ops.cast([[200.0, -200.0, 0.0]] * 2, "bfloat16"))
    assert keras.backend.standardize_dtype(large.dtype) == "float32"
    assert np.isfinite(to_numpy(large)).all()


def test_losses_are_serialized():
    for loss in (*LOSSES[:-1], layers.reconstruction_loss):
        config = keras.saving.serialize_keras_object(loss)
        assert keras.saving.deserialize_keras_object(config) is loss


@pytest.mark.parametrize("shape", [(2,), (2, 1), (2, 1, 3), (2, 2), (1, 3)])
@pytest.mark.parametrize("loss", [*LOSSES, layers.correct])
def test_labels_that_are_not_one_hot_are_refused(loss, shape):
    with pytest.raises(ValueError, match="one-hot"):
        loss(np.zeros(shape, "int32"), LOGITS)


@pytest.mark.parametrize("shape", [(2, 4, 5), (2, 5, 5, 5), (2, 6, 7, 3)])
@pytest.mark.parametrize(
    "function",
    [*LOSSES, layers.correct, lambda *both: layers.almost_correct(*both, 2)],
)
def test_labels_for_each_pixel_equal_a_flat_batch(function, shape):
    rng = np.random.default_rng(0)
    logits = rng.random(shape).astype("float32")
    labels = (rng.random(shape) < 0.6).astype("float32")
    flat = (values.reshape(-1, shape[-1]) for values in (labels, logits))
    expected, found = map(to_numpy, (function(*flat), function(labels, logits)))
    np.testing.assert_allclose(found, expected.reshape(shape[:-1]), rtol=1e-6)
    assert len(set(expected)) > 1


def test_gradients_of_the_spread_loss():
    activations = np.random.default_rng(17).uniform(size=(4, 5))
    classes = [{0}, {3}, {1, 2}, {1}]
    labels = np.stack([np.eye(5)[[*each]].sum(axis=0) for each in classes])
    margins = np.float32([0.2, 0.9, 0.5, 0.9])  # of each example

    def loops(activations):
        losses = np.zeros(4)
        for example, present in enumerate(classes):
            scores = activations[example]
            for right, wrong in np.ndindex(5, 5):
                if right in present and wrong not in present:
                    lead = scores[right] - scores[wrong]
                    losses[example] += max(0, margins[example] - lead) ** 2
        return losses

    check_whole_batch(
        lambda a: layers.spread_loss(labels.astype("float32"), a, margins),
        [activations],
        one_by_one(loops),
    )


@pytest.mark.parametrize(
    ("schedule", "steps", "expected"),
    [
        ("linear", [0, 50, 100, 1000], [0.2, 0.55, 0.9, 0.9]),
        # The authors' 0.2 + 0.79 sigmoid(min(10, step / 50000 - 4)).
        ("sigmoid", [0, 200_000, 10**7], [0.2142091, 0.595, 0.9899641]),
    ],
)
def test_the_margin_grows(schedule, steps, expected):
    last = {"linear": 100, "sigmoid": 700_000}[schedule]
    margins = layers.spread_margin(np.array(steps, "int64"), last, schedule)
    np.testing.assert_allclose(to_numpy(margins), expected, rtol=1e-6)
    final = layers.spread_margin(None, last, schedule)
    np.testing.assert_allclose(to_numpy(final), expected[-1], rtol=1e-6)


@pytest.mark.parametrize(
    ("classes", "correct", "almost_correct"),
    [
        # Ties go to the lower class.
        ([[1], [3], [0], [2]], [1, 0, 1, 1], [1, 0, 1, 1]),
        ([[0], [0], [1], [3]], [0, 1, 0, 0], [0, 1, 0, 0]),
        # Predicted: {1, 2}, {0, 3}, {0, 1}, {2, 3}.
        ([[2, 1], [3, 1], [2, 3], [3, 2]], [1, 0, 0, 1], [1, 1, 0, 1]),
    ],
)
def test_one_and_two_targets(classes, correct, almost_correct):
    labels = np.eye(4, dtype="float32")[classes].sum(axis=1)
    logits = [[1.0, 9, 3, 2], [5, 2, 1, 4], [3, 3, 2, 1], [1, 2, 4, 4]]
    both = labels, np.float32(logits), len(classes[0])
    np.testing.assert_array_equal(layers.correct(*both), correct)
    np.testing.assert_array_equal(layers.almost_correct(*both), almost_correct)


def test_any_number_of_labels():
    # Both classes; one of two; none of none; one of none; nothing finite.
    labels = np.array([[1, 1, 0], [1, 0, 1], *[[0] * 3] * 3])
    logits = [[0.9, 0.6, 0.5], [0.7, 0, 0], [0] * 3, [0, 1, 0], [np.nan] * 3]
    correct = layers.correct(labels, np.array(logits), num_targets=0)
    almost = layers.almost_correct(labels, np.array(logits), num_targets=0)
    np.testing.assert_array_equal(correct, [1, 0, 1, 0, 0])
    np.testing.assert_array_equal(almost, [1, 1, 0, 0, 0])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_logits_that_are_not_finite_predict_nothing(value):
    logits = np.array([[0.9, 0.1, value], [0.9, 0.1, 0.0]], "float32")
    labels = np.eye(3, dtype="float32")[[0, 0]]
    for function in (layers.correct, layers.almost_correct):
        assert to_numpy(function(labels, logits)).tolist() == [0, 1]


@pytest.mark.parametrize("shape", [(2, 4, 4), (1, 4, 4, 1), (2, 4, 4, 3)])
def test_images_of_another_shape_are_errors(shape):
    with pytest.raises(ValueError, match="must have the shape"):
        layers.reconstruction_loss(np.ones(shape), np.ones((2, 4, 4, 1)))
