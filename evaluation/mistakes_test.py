import numpy as np
import pytest

from evaluation.evaluator import score
from evaluation.mistakes import (
    confusion_matrix,
    first_mistakes,
    predicted_classes,
    wrong_examples,
)
from input_data import registry
from input_data.splits import Split

RNG = np.random.default_rng(4)


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
        confusion_matrix(labels, logits, 1), [[1, 1, 0], [0, 0, 1], [1, 0, 1]]
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
        confusion_matrix(labels, logits, 2),
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
    matrix = confusion_matrix(labels, logits, num_targets)
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
    wrong = wrong_examples(labels, logits, num_targets)
    assert {7, 8} <= set(wrong)
    assert 100 < len(wrong) == score(labels, logits, num_targets).wrong < 500
    right = np.setdiff1d(np.arange(500), wrong)
    assert score(labels[right], logits[right], num_targets).wrong == 0


@pytest.mark.parametrize("num_targets", [1, 2])
def test_first_mistakes_hold_their_images_classes_and_values(num_targets):
    pipeline = registry.load(
        "digits",
        Split.TEST,
        registry.Options(num_targets=num_targets, eval_size=250),
    )
    ((x, y),) = pipeline.evaluation_batches(250)
    labels = y["logits"]
    logits = (0.8 * labels).astype("float32")
    # In three batches; the fourth is beyond the number that is asked for.
    numbers = [0, 99, 100, 249]
    for number in numbers:
        others = np.flatnonzero(labels[number] == 0)
        logits[number, others[0]] = 0.9
        logits[number, others[1]] = 0.85
    found = first_mistakes(pipeline, labels, logits, 3)
    assert len(found) == 3
    for number, mistake in zip(numbers, found, strict=False):
        np.testing.assert_array_equal(mistake.image, x["images"][number])
        assert mistake.labels == np.flatnonzero(labels[number]).tolist()
        others = [c for c in range(10) if c not in mistake.labels]
        assert mistake.predictions == others[:num_targets]
        assert mistake.values == pytest.approx([0.9, 0.85][:num_targets])
    last = first_mistakes(pipeline, labels, logits, 25)[-1]
    np.testing.assert_array_equal(last.image, x["images"][249])


def test_no_mistakes():
    pipeline = registry.load("digits", Split.TEST, registry.Options())
    ((_, y),) = pipeline.evaluation_batches(360)
    assert first_mistakes(pipeline, y["logits"], y["logits"], 25) == []
