import types

import numpy as np
import pytest

from input_data import keys
from training import class_report
from training.scores import Predictions, Score


def predictions(labels, logits, num_targets):
    spec = types.SimpleNamespace(num_targets=num_targets, names="abcdef")
    spec.rows = None
    pipeline = types.SimpleNamespace(spec=spec)
    config = types.SimpleNamespace(checkpoint=None)
    return Predictions(labels, logits, None, pipeline, config, 1.0)


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
            [[n // 4, n // 2 % 2, n % 2] for n in (4, 0, 6, 2, 5, 0, 0)],
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


def test_a_report_equals_that_of_scikit_learn():
    """Numbers of `classification_report` and of `balanced_accuracy_score`."""
    rng = np.random.default_rng(0)
    labels = rng.choice(5, 80, p=[0.6, 0.25, 0.1, 0.05, 0])
    logits = rng.normal(size=(80, 5)) + np.eye(5)[labels]
    logits = np.column_stack([logits, -9 * np.ones(80)])  # no f is predicted
    found = predictions(np.eye(6)[labels], logits, 1)
    document = class_report.document("images", found)
    _, balanced, *table = class_report.lines(document, has_table=True)
    expected = pytest.approx(45.47979797979799)
    assert document["balanced_error_percent"] == expected
    assert balanced == "balanced error: 45.48%"
    recalls = [row["recall"] for row in document["classes"][:5]]
    assert document["macro"]["recall"] == pytest.approx(np.mean(recalls))
    assert table == [
        "class  images  recall  precision      F1",
        "a          45  0.4444     0.8696  0.5882",
        "b          20  0.6000     0.5455  0.5714",
        "c          11  0.6364     0.4667  0.5385",
        "d           4  0.5000     0.2500  0.3333",
        "e           0  0.0000     0.0000  0.0000",
        "f           0  0.0000     0.0000  0.0000",
    ]
    document["classes"] *= 5
    assert len([*class_report.lines(document, has_table=True)]) == 3


def test_the_interval_of_one_wrong_image_of_twelve():
    found = Score(12, 11, 0, 0).wrong_percent_interval
    assert found == pytest.approx([1.4865, 35.3880], abs=1e-4)
