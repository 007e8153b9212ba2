import dataclasses
import types

import numpy as np
import pytest

from config import Config
from input_data import keys
from training import class_report
from training.scores import Predictions, Score


def predictions(labels, logits, num_targets):
    spec = types.SimpleNamespace(num_targets=num_targets)
    pipeline = types.SimpleNamespace(spec=spec)
    return Predictions(labels, logits, None, pipeline, "a data set", 1.0)


@pytest.mark.parametrize(
    ("num_targets", "labels", "logits", "counts", "wrong", "matrix"),
    [
        (
            1,  # 0 as 0, 0 as 1, 1 as 2; 2 as 0: a tie; 2 as 2, nothing
            np.eye(3)[[0, 0, 1, 2, 2, 2]],
            [
                *([0.9, 0.1, 0.1], [0.1, 0.9, 0.1], [0.1, 0.8, 0.9]),
                *([0.5, 0.5, 0.5], [0.1, 0.1, 0.2], [0.1, np.nan, 0.2]),
            ],
            *((6, 2, 2, 1), [1, 2, 3, 5], [[1, 1, 0], [0, 0, 1], [1, 0, 1]]),
        ),
        (
            2,  # both right; 1 right, 0 as 2; 0 and 1 as 2 and 3
            [[1, 1, 0, 0]] * 5,
            [
                *([0.8, 0.9, 0.1, 0.2], [0.1, 0.9, 0.8, 0.2]),
                [0.1, 0.2, 0.8, 0.9],
                [0.6, 0.5, 0.1, 0.2],  # right, but 0.5 is not above 0.5
                [0.9, 0.7, 0.8, 0.1],  # above 0.5, but not the two longest
            ],
            *((5, 2, 4, 1), [1, 2, 4]),
            [[3, 0, 1.5, 0.5], [0, 3, 1.5, 0.5], [0] * 4, [0] * 4],
        ),
        (
            # The last row and column are for no class. One missed label for
            # two wrong predictions; none for one; 0, 1 as 2; 1 missed; two
            # right; none right; not finite.
            keys.SEVERAL_LABELS,
            [
                [1, 0, 0],
                [0] * 3,
                [1, 1, 0],
                [0, 1, 0],
                [1, 0, 1],
                *[[0] * 3] * 2,
            ],
            [
                *([0.1, 0.9, 0.8], [0.9, 0.1, 0.2], [0.9, 0.4, 0.7], [0] * 3),
                *([0.9, 0.5, 0.6], [0.1, 0.2, 0.3], [0.1, np.inf, 0.3]),
            ],
            *((7, 2, 2, 2), [0, 1, 2, 3, 6]),
            [[2, 0.5, 0.5, 0], [0, 0, 1, 1], [0, 0, 1, 0], [1, 0.5, 0.5, 0]],
        ),
    ],
)
def test_scores_and_confusion_matrices_by_hand(
    num_targets, labels, logits, counts, wrong, matrix
):
    found = predictions(np.array(labels), np.array(logits), num_targets)
    assert found.score == Score(*counts)
    assert found.wrong.tolist() == wrong
    found.pipeline.spec.rows = range(10, 20)  # not of pairs
    added = 0 if num_targets == 2 else 10
    assert found.wrong_rows == [n + added for n in wrong]
    np.testing.assert_array_equal(found.confusion_matrix, matrix)


def test_ratios_by_hand():
    """True positives, false ones and missed labels: 1, 1, 2; 0, 0, 1; 0, 1, 0.

    The last class is neither present nor predicted: 0 / 0 is 0.
    """
    labels = [[1, 1, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0], [0] * 4]
    logits = [[0.9, 0, 0, 0], [0.1] * 4, [0] * 4, [0.8, 0, 0.7, 0]]
    several = predictions(np.array(labels), np.array(logits), 0)
    both = several.labels > 0, several.predicted
    ratios = class_report.precision_recall_f1(*both)
    macro, micro = (1 / 8, 1 / 12, 1 / 10), (1 / 3, 1 / 4, 2 / 7)
    expected = [(1 / 2, 1 / 3, 2 / 5), *[[0] * 3] * 3, macro, micro]
    np.testing.assert_allclose(ratios, expected)


def test_a_report_equals_that_of_scikit_learn():
    """Numbers of `classification_report` and of `balanced_accuracy_score`."""
    rng = np.random.default_rng(0)
    labels = rng.choice(5, 80, p=[0.6, 0.25, 0.1, 0.05, 0])
    logits = rng.normal(size=(80, 5)) + np.eye(5)[labels]
    found = predictions(np.eye(5)[labels], logits, 1)
    found.pipeline.spec.names, found.pipeline.spec.rows = "abcde", None
    found = dataclasses.replace(found, config=Config(checkpoint="x"))
    document = class_report.document("images", found)
    names = "labels", "recall", "precision", "f1"
    expected = [
        (45, 0.4444444444444444, 0.8695652173913043, 0.5882352941176471),
        (20, 0.6, 0.5454545454545454, 0.5714285714285714),
        (11, 0.6363636363636364, 0.4666666666666667, 0.5384615384615384),
        (4, 0.5, 0.25, 0.3333333333333333),
        (0, 0, 0, 0),  # no image: not in the balanced error
    ]
    rows = [[row[name] for name in names] for row in document["classes"]]
    np.testing.assert_allclose(rows, expected, rtol=1e-12)
    macro = [document["macro"][name] for name in names[1:]]
    np.testing.assert_allclose(macro, np.mean(expected, axis=0)[1:])
    balanced = document["balanced_error_percent"]
    assert balanced == pytest.approx(45.479797979797987)
    wrong = logits.argmax(axis=1) != labels
    errors = [wrong[labels == label].mean() for label in range(4)]
    assert balanced == pytest.approx(100 * np.mean(errors))
    text = [*class_report.lines(document, has_table=True)]
    assert text[0].endswith("; balanced error: 45.48%")
    assert text[1:3] == [
        "class  images  recall  precision      F1",
        "a          45  0.4444     0.8696  0.5882",
    ]
    assert [*class_report.lines(document, has_table=False)] == text[:1]
    document["classes"] *= 5
    _, line = class_report.lines(document, has_table=True)
    assert "--format=json" in line


@pytest.mark.parametrize(
    ("wrong", "low", "high"),  # of scipy.stats.binomtest(wrong, 12)
    [(0, 0, 24.249401), (1, 1.486509, 35.387991), (12, 75.750599, 100)],
)
def test_the_interval_of_wilson(wrong, low, high):
    interval = Score(12, 12 - wrong, 0, 0).wrong_percent_interval
    assert interval == pytest.approx([low, high], abs=1e-5)
    assert 0 <= interval[0] < interval[1] <= 100
