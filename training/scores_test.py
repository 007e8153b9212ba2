import types

import numpy as np
import pytest

from input_data import keys
from training.class_report import ratios_by_class
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


def test_ratios_by_hand():
    """True positives, false ones and missed labels: 1, 1, 2; 0, 0, 1; 0, 1, 0.

    The last class is neither present nor predicted: 0 / 0 is 0.
    """
    labels = [[1, 1, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0], [0] * 4]
    logits = [[0.9, 0, 0, 0], [0.1] * 4, [0] * 4, [0.8, 0, 0.7, 0]]
    several = predictions(np.array(labels), np.array(logits), 0)
    several.pipeline.spec.names = "abcd"
    names, ratios = zip(*ratios_by_class(several), strict=True)
    assert names == (*"abcd", "macro", "micro")
    macro, micro = (1 / 8, 1 / 12, 1 / 10), (1 / 3, 1 / 4, 2 / 7)
    expected = [(1 / 2, 1 / 3, 2 / 5), *[[0] * 3] * 3, macro, micro]
    np.testing.assert_allclose([[*r.values()] for r in ratios], expected)
