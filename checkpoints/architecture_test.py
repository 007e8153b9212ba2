import dataclasses
import json

import pytest

from checkpoints.architecture import Architecture
from input_data.features import ImageShape
from models import baseline, matrix_capsule
from models.capsule import HParams

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
            dataclasses.replace(
                ONE, model="baseline", hparams=baseline.HParams()
            ),
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
    shape = ImageShape(28, 28, 1, 10)
    one = Architecture("baseline", shape, 1, baseline.HParams())
    same = Architecture("baseline", shape, 1, baseline.HParams(padding="SAME"))
    assert one.network_differences(same) == [("padding", "VALID", "SAME")]
    assert not hasattr(one.hparams, "routing")


@pytest.mark.parametrize(
    ("name", "value", "differs"),
    [
        ("normalise", "types", True),
        ("routing", 2, True),
        ("class_lambda", 0.1, True),
        ("damping", 0.1, True),
        ("coordinates", False, True),
        ("margin_steps", 5, False),
        ("kernel_stddev", 0.5, False),
    ],
)
def test_what_makes_another_network_of_matrix_capsules(name, value, differs):
    def architecture(**values):
        hparams = matrix_capsule.HParams(**values)
        return Architecture("matrix_capsule", ONE.shape, 1, hparams)

    one, other = architecture(), architecture(**{name: value})
    found = [difference[0] for difference in one.network_differences(other)]
    assert found == ([name] if differs else [])


def test_json_with_the_hyper_parameters_of_all_models():
    """As checkpoints were written once, whatever the model."""
    once = {
        "class_atoms": 16,
        "conv_channels": 256,
        "decay_rate": 0.96,
        "decay_steps": 2000,
        "leaky": False,
        "learning_rate": 0.5,
        "loss_type": "softmax",
        "num_prime_capsules": 32,
        "padding": "SAME",
        "primary_atoms": 8,
        "remake": True,
        "routing": 3,
        "verbose": False,
    }
    for model, hparams in (
        ("capsule", HParams(**once)),
        (
            "baseline",
            baseline.HParams(
                learning_rate=0.5, loss_type="softmax", padding="SAME"
            ),
        ),
    ):
        values = {**dataclasses.replace(ONE, model=model).to_json()}
        values["hparams"] = once
        assert Architecture.from_json(values).hparams == hparams
        values["hparams"] = {**once, "of_the_future": 1}
        with pytest.raises(TypeError, match="of_the_future"):
            Architecture.from_json(values)
