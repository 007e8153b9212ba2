import numpy as np
import pytest

from devices.parallel import OneDevice
from evaluation.evaluator import Score, predict, score
from testing.tiny_subject import NUM_EXAMPLES, make_subject


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


def test_both_measures_of_pairs():
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
    assert result.measures == (
        "Both classes right: 3 of 4 (75.00%); and both above 0.5: "
        "1 of 4 (25.00%)"
    )


def test_logits_that_are_not_finite_are_wrong():
    logits = np.array([[np.nan, np.nan], [0.9, 0.1], [np.inf, 0.0]])
    labels = np.eye(2)[[0, 0, 0]]
    assert score(labels, logits, 1) == Score(3, 1, 1, 1)


@pytest.mark.parametrize("remake", [True, False])
def test_the_loss_is_that_of_training(remake):
    subject = make_subject(2, remake=remake)
    predictor = OneDevice().predictor(subject.model)
    found = predict(predictor, subject.pipeline, 100)
    assert found.losses.shape == (NUM_EXAMPLES,)
    ((x, y),) = subject.pipeline.evaluation_batches(NUM_EXAMPLES)
    subject.model.compile()
    logs = subject.model.test_on_batch(x, y, return_dict=True)
    assert found.score.loss == pytest.approx(float(logs["loss"]), rel=1e-5)
