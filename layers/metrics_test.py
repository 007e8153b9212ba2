import numpy as np
import pytest
from keras import ops

import layers

LOGITS = np.array(
    [
        [0.1, 0.9, 0.3, 0.2],
        [0.5, 0.2, 0.1, 0.4],
        [0.3, 0.3, 0.2, 0.1],
        [0.1, 0.2, 0.4, 0.4],
    ],
    "float32",
)


def k_hot(*classes):
    return np.eye(4, dtype="float32")[list(classes)].sum(axis=0)


def values(function, labels, num_targets):
    return ops.convert_to_numpy(
        function(np.stack(labels), LOGITS, num_targets)
    ).tolist()


def test_one_target_with_ties_to_the_lower_class():
    labels = [k_hot(1), k_hot(3), k_hot(0), k_hot(2)]
    assert values(layers.correct, labels, 1) == [1, 0, 1, 1]
    assert values(layers.almost_correct, labels, 1) == [1, 0, 1, 1]
    labels = [k_hot(0), k_hot(0), k_hot(1), k_hot(3)]
    assert values(layers.correct, labels, 1) == [0, 1, 0, 0]


def test_two_targets_are_a_set():
    # Predicted: {1, 2}, {0, 3}, {0, 1}, {2, 3}.
    labels = [k_hot(2, 1), k_hot(3, 1), k_hot(2, 3), k_hot(3, 2)]
    assert values(layers.correct, labels, 2) == [1, 0, 0, 1]
    assert values(layers.almost_correct, labels, 2) == [1, 1, 0, 1]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_logits_that_are_not_finite_predict_nothing(value):
    logits = np.array([[0.9, 0.1, value], [0.9, 0.1, 0.0]], "float32")
    labels = np.eye(3, dtype="float32")[[0, 0]]
    for function in (layers.correct, layers.almost_correct):
        out = ops.convert_to_numpy(function(labels, logits))
        assert out.tolist() == [0, 1]


@pytest.mark.parametrize("num_targets", [1, 2])
def test_equal_logits_predict_the_first_classes(num_targets):
    logits = np.zeros((1, 12), "float32")
    first = np.zeros((1, 12), "float32")
    first[0, :num_targets] = 1
    out = layers.correct(first, logits, num_targets)
    assert ops.convert_to_numpy(out).tolist() == [1]
