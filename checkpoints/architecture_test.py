import dataclasses
import json

import pytest

from checkpoints.architecture import Architecture
from input_data.features import ImageShape
from models.hparams import HParams

ONE = Architecture("capsule", ImageShape(28, 28, 1, 10), 1, HParams())


def with_hparams(**values):
    return dataclasses.replace(ONE, hparams=HParams(**values))


def test_json_round_trip():
    other = with_hparams(leaky=True, learning_rate=0.5, padding="SAME")
    text = json.dumps(other.to_json())
    assert Architecture.from_json(json.loads(text)) == other


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (ONE, []),
        (with_hparams(routing=1), [("routing", 3, 1)]),
        (with_hparams(learning_rate=0.5), []),
        (
            dataclasses.replace(ONE, model="baseline"),
            [("model", "capsule", "baseline")],
        ),
        (dataclasses.replace(ONE, num_targets=2), [("num_targets", 1, 2)]),
        (
            dataclasses.replace(ONE, shape=ImageShape(24, 28, 3, 10)),
            [("height", 28, 24), ("depth", 1, 3)],
        ),
    ],
)
def test_network_differences(other, expected):
    assert ONE.network_differences(other) == expected


def test_training_differences():
    other = with_hparams(routing=1, learning_rate=0.5, loss_type="softmax")
    assert ONE.training_differences(other) == [
        ("learning_rate", 0.001, 0.5),
        ("loss_type", "margin", "softmax"),
    ]


def test_the_baseline_has_hyper_parameters_of_its_own():
    baseline = dataclasses.replace(ONE, model="baseline")
    without_remake = dataclasses.replace(
        baseline, hparams=HParams(remake=False, routing=1)
    )
    assert baseline.network_differences(without_remake) == []
    same = dataclasses.replace(baseline, hparams=HParams(padding="SAME"))
    assert baseline.network_differences(same) == [("padding", "VALID", "SAME")]
