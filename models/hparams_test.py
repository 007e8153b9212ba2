import dataclasses

import pytest

from common.errors import UserError
from models.hparams import HParams, parse_overrides


def test_defaults_are_the_references():
    assert dataclasses.asdict(HParams()) == {
        # The paper's, fixed in the reference.
        "class_atoms": 16,
        "conv_channels": 256,
        "primary_atoms": 8,
        "decay_rate": 0.96,
        "decay_steps": 2000,
        "leaky": False,
        "learning_rate": 0.001,
        "loss_type": "margin",
        "num_prime_capsules": 32,
        "padding": "VALID",
        "remake": True,
        "routing": 3,
        "verbose": False,
    }


def test_the_references_cifar_overrides():
    text = "num_prime_capsules=64,padding=SAME,leaky=true,remake=false"
    assert parse_overrides(text) == {
        "num_prime_capsules": 64,
        "padding": "SAME",
        "leaky": True,
        "remake": False,
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        (" routing=1 , leaky=True ", {"routing": 1, "leaky": True}),
        ("learning_rate=1e-4", {"learning_rate": 1e-4}),
        ("decay_rate=1", {"decay_rate": 1.0}),
        ("verbose=0,remake=1", {"verbose": False, "remake": True}),
        ("loss_type=softmax", {"loss_type": "softmax"}),
    ],
)
def test_values_are_typed(text, expected):
    values = parse_overrides(text)
    assert values == expected
    assert [type(v) for v in values.values()] == [
        type(v) for v in expected.values()
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rooting=1", "unknown hyper-parameter 'rooting'; valid names:"),
        ("rooting=1", "  routing=3: routing iterations"),
        ("rooting=1", "  leaky=false: leaky softmax"),
        ("rooting=1", "  preset: svhn"),
        ("routing=three", "routing=three is not a whole number"),
        ("routing=1.5", "routing=1.5 is not a whole number"),
        ("leaky=yes", "leaky=yes is not true or false"),
        ("learning_rate=fast", "learning_rate=fast is not a number"),
        ("learning_rate=nan", "learning_rate=nan is not a number"),
        ("routing", "'routing' is not of the form name=value"),
        ("routing=1,routing=2", "routing is given twice"),
    ],
)
def test_wrong_strings_say_what_would_be_right(text, message):
    with pytest.raises(UserError, match=message):
        parse_overrides(text)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"routing": 0}, "routing=0 must be at least 1"),
        ({"num_prime_capsules": -1}, "num_prime_capsules=-1 must be"),
        ({"learning_rate": 0.0}, "learning_rate=0.0 must be greater than 0"),
        ({"decay_steps": 0}, "decay_steps=0 must be at least 1"),
        ({"loss_type": "hinge"}, "hinge must be one of margin, softmax"),
        ({"padding": "same"}, "padding=same must be one of VALID, SAME"),
    ],
)
def test_wrong_values_say_what_would_be_right(values, message):
    with pytest.raises(UserError, match=message):
        HParams(**values)
