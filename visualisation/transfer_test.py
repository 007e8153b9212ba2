import numpy as np
import pytest
import tensorflow as tf

from visualisation import transfer
from visualisation.drawing import WRONG_COLOUR

RESULTS = {
    "dataset": "mnist",
    "pairs": "below",
    "seed": 0,
    "runs": {
        "shared": [
            {
                "checkpoint": f"/s{seed}",
                "single": {"num_examples": 100, "correct": 99, "confident": 99},
                "pairs": {"num_examples": 100, "correct": c, "confident": 90},
            }
            for seed, c in enumerate((95, 96, 94))
        ],
        "pooling": [
            {
                "checkpoint": "/p",
                "single": {"num_examples": 100, "correct": 98, "confident": 97},
                "pairs": {"num_examples": 10, "correct": 9, "confident": 0},
            }
        ],
    },
    "examples": [
        {
            "labels": [2, 7],
            "predictions": {
                "shared": [[7, 0.9], [2, 0.8]],
                "pooling": [[2, 0.9], [1, 0.2]],
            },
        }
    ]
    * 3,
}
IMAGES = np.random.default_rng(0).uniform(size=(3, 8, 4, 1))


def test_the_interval_of_several_runs_is_students():
    mean, low, high = transfer.confidence_interval([0.95, 0.96, 0.94], 100)
    # 4.303 * 0.01 / sqrt(3).
    np.testing.assert_allclose(
        [mean, low, high], [0.95, 0.92516, 0.97484], 1e-4
    )


def test_the_interval_of_one_run_is_wilsons():
    mean, low, high = transfer.confidence_interval([0.9], 10)
    np.testing.assert_allclose([mean, low, high], [0.9, 0.5958, 0.9821], 1e-3)
    for total in (10, 20, 100, 10000):  # of some the end rounds to below 1
        for share in (0.0, 1.0):
            mean, low, high = transfer.confidence_interval([share], total)
            assert low <= mean == share <= high


@pytest.mark.parametrize(
    ("degrees", "expected"),
    [(1, 12.706), (10, 2.228), (11, 2.201), (30, 2.042)],
)
def test_students_points(degrees, expected):
    assert transfer._t(degrees) == pytest.approx(expected, abs=1e-3)


def test_what_is_drawn_of_the_results():
    shares = transfer.shares(RESULTS)
    (mean, *_), runs = shares["shared"]["both of two"]
    assert (mean, runs) == (pytest.approx(0.95), [0.95, 0.96, 0.94])
    (mean, *_), runs = shares["pooling"]["both, and above 0.5"]
    assert (mean, runs) == (0.0, [0.0])
    assert shares["pooling"]["one object"][1] == [0.98]


def test_both_pictures(monkeypatch):
    drawn = {}
    monkeypatch.setattr(
        transfer, "png", lambda figure: drawn.setdefault(len(drawn), figure)
    )
    files = transfer.make(RESULTS, IMAGES)
    assert list(files) == ["transfer_accuracy.png", "transfer_pairs.png"]
    bars = drawn[0].axes[0].patches
    heights = [bar.get_height() for bar in bars]
    np.testing.assert_allclose(heights, [99, 98, 95, 90, 90, 0], atol=1e-9)
    texts = [
        (text.get_text(), text.get_color()) for text in drawn[1].axes[0].texts
    ]
    assert texts.count(("2 and 7", "black")) == 3
    assert texts.count(("2 and 7\n0.80 0.90", "black")) == 3
    assert texts.count(("1 and 2\n0.20 0.90", WRONG_COLOUR)) == 3


def test_files_are_pictures():
    for content in transfer.make(RESULTS, IMAGES).values():
        assert tf.io.decode_png(content, 3).shape[0] > 100
