import types

import numpy as np
import pytest

from training.scores import Predictions, Score, predicted_classes

RNG = np.random.default_rng(4)


def predictions(labels, logits, num_targets):
    spec = types.SimpleNamespace(num_targets=num_targets)
    pipeline = types.SimpleNamespace(spec=spec)
    return Predictions(labels, logits, None, pipeline, "a data set", 1.0)


def score(labels, logits, num_targets):
    return predictions(labels, logits, num_targets).score


def random_logits_and_labels(num_targets, count=500, num_classes=6):
    """Coarse logits, so that there are ties, and k-hot labels."""
    logits = RNG.integers(0, 4, (count, num_classes)) / 4
    order = RNG.uniform(size=(count, num_classes)).argsort(axis=1)
    labels = (order < num_targets).astype("float32")
    return labels, logits.astype("float32")


def test_predictions_are_the_largest_ties_to_the_lower():
    logits = np.array([[0.2, 0.9, 0.2, 0.5], [0.1, 0.3, 0.3, 0.3]])
    assert predicted_classes(logits, 2).tolist() == [[1, 3], [1, 2]]


def test_confusion_matrix_of_one_target_by_hand():
    labels = np.eye(3)[[0, 0, 1, 2, 2, 2]]
    logits = np.array(
        [
            [0.9, 0.1, 0.1],  # 0 as 0
            [0.1, 0.9, 0.1],  # 0 as 1
            [0.1, 0.8, 0.9],  # 1 as 2
            [0.5, 0.5, 0.5],  # 2 as 0: a tie
            [0.1, 0.1, 0.2],  # 2 as 2
            [0.1, np.nan, 0.2],  # nothing
        ]
    )
    np.testing.assert_array_equal(
        predictions(labels, logits, 1).confusion_matrix,
        [[1, 1, 0], [0, 0, 1], [1, 0, 1]],
    )


def test_confusion_matrix_of_two_targets_by_hand():
    labels = np.array([[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0]])
    logits = np.array(
        [
            [0.8, 0.9, 0.1, 0.2],  # both right
            [0.1, 0.9, 0.8, 0.2],  # 1 right, 0 taken for 2
            [0.1, 0.2, 0.8, 0.9],  # 0 and 1 taken for 2 and 3
        ]
    )
    np.testing.assert_array_equal(
        predictions(labels, logits, 2).confusion_matrix,
        [
            [1, 0, 1 + 1 / 2, 1 / 2],
            [0, 2, 1 / 2, 1 / 2],
            [0, 0, 0, 0],
            [0, 0, 0, 0],
        ],
    )


@pytest.mark.parametrize("num_targets", [1, 2, 3])
def test_confusion_matrix_sums_to_labels_and_to_predictions(num_targets):
    labels, logits = random_logits_and_labels(num_targets)
    matrix = predictions(labels, logits, num_targets).confusion_matrix
    predicted, hits = np.zeros(6), np.zeros(6)
    for label, logit in zip(labels, logits, strict=True):
        ranking = sorted(range(6), key=lambda c: (-logit[c], c))
        for number in ranking[:num_targets]:
            predicted[number] += 1
            hits[number] += label[number]
    np.testing.assert_allclose(matrix.sum(axis=1), labels.sum(axis=0))
    np.testing.assert_allclose(matrix.sum(axis=0), predicted)
    np.testing.assert_allclose(np.diag(matrix), hits)


@pytest.mark.parametrize("num_targets", [1, 2])
def test_wrong_examples_are_those_that_the_score_counts(num_targets):
    labels, logits = random_logits_and_labels(num_targets)
    logits[7, 2], logits[8] = np.inf, np.nan
    wrong = predictions(labels, logits, num_targets).wrong
    assert {7, 8} <= set(wrong)
    assert 100 < len(wrong) == score(labels, logits, num_targets).wrong < 500
    right = np.setdiff1d(np.arange(500), wrong)
    assert score(labels[right], logits[right], num_targets).wrong == 0


def test_score_counts_and_prints_as_the_reference():
    assert str(Score(10_000, 9_888, 9_990, 0)) == (
        "Total wrong predictions: 112, wrong percent: 1.12%"
    )
    assert str(Score(360, 351, 360, 0)) == (
        "Total wrong predictions: 9, wrong percent: 2.50%"
    )
    assert Score(360, 351, 358, 0).almost_wrong == 2


def test_score_of_one_and_two_targets():
    logits = np.array([[0.9, 0.5, 0.1], [0.2, 0.7, 0.6], [0.1, 0.2, 0.3]])
    one = np.eye(3)[[0, 2, 2]]
    assert score(one, logits, 1) == Score(3, 2, 2, 1)
    two = np.array([[1, 1, 0], [1, 1, 0], [1, 1, 0]])
    assert score(two, logits, 2) == Score(3, 1, 3, 0)


def test_text_of_pairs():
    labels = np.array([[1, 0, 1]] * 4)
    logits = np.array(
        [
            [0.9, 0.1, 0.6],
            [0.6, 0.1, 0.5],  # right, but not above 0.5
            [0.9, 0.8, 0.7],  # above 0.5, but not the two longest
            [0.4, 0.1, 0.3],
        ]
    )
    result = score(labels, logits, 2)
    assert result == Score(4, 3, 4, 1)
    assert result.pairs_text == (
        "Both classes right: 3 of 4 (75.00%); and both above 0.5: "
        "1 of 4 (25.00%)"
    )
