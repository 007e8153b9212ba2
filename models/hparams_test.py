import dataclasses

import pytest

from common.errors import UserError
from input_data.features import ImageShape
from models import baseline
from models.capsule import HParams
from models.hparams import parse_overrides
from models.registry import build_model


def test_defaults_of_the_reference():
    assert dataclasses.asdict(HParams()) == {
        # The paper's, fixed in the reference.
        "class_atoms": 16,
        "conv_channels": 256,
        "primary_atoms": 8,
        "remake_weight": 0.0005,
        "decay_rate": 0.96,
        "decay_steps": 2000,
        "leaky": False,
        "learning_rate": 0.001,
        "loss_type": "margin",
        "num_prime_capsules": 32,
        "optimizer": "adam",
        "padding": "VALID",
        "remake": True,
        "routing": 3,
        "schedule": "exponential",
        "verbose": False,
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
        (  # the reference's for CIFAR-10
            "num_prime_capsules=64,padding=SAME,leaky=true,remake=false",
            {
                "num_prime_capsules": 64,
                "padding": "SAME",
                "leaky": True,
                "remake": False,
            },
        ),
    ],
)
def test_values_are_typed(text, expected):
    values = parse_overrides(HParams, text)
    assert values == expected
    assert [type(v) for v in values.values()] == [
        type(v) for v in expected.values()
    ]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("rooting=1", "did you mean routing"),
        ("routing=three", "routing=three"),
        ("routing=1.5", "routing=1.5"),
        ("leaky=yes", "leaky=yes"),
        ("learning_rate=fast", "learning_rate=fast"),
        ("routing", "'routing'"),
        ("preset=svnh", "did you mean svhn"),
    ],
)
def test_wrong_strings_are_named(text, name):
    with pytest.raises(UserError, match=name):
        parse_overrides(HParams, text)


@pytest.mark.parametrize(
    "values",
    [
        {"routing": 0},
        {"learning_rate": 0.0},
        {"learning_rate": float("nan")},
        {"decay_steps": 0},
        {"loss_type": "hinge"},
        {"padding": "same"},
    ],
)
def test_values_out_of_range_are_named(values):
    (name,) = values
    with pytest.raises(UserError, match=f"{name}="):
        HParams(**values)


def test_the_svhn_preset_is_the_papers_smaller_network():
    """Section 7: 64 channels, 16 types of 6 atoms, 8 atoms for a class."""
    assert parse_overrides(HParams, "preset=svhn") == {
        "conv_channels": 64,
        "num_prime_capsules": 16,
        "primary_atoms": 6,
        "class_atoms": 8,
    }
    values = parse_overrides(HParams, "preset=svhn,remake=false")
    shape = ImageShape(32, 32, 3, 10)
    model = build_model("capsule", shape, 1, HParams(**values))
    shapes = {w.path.split("/", 1)[1]: tuple(w.shape) for w in model.weights}
    inputs = 8 * 8 * 16  # (32 - 8 - 8) / 2 positions a side
    assert sorted(shapes.values()) == sorted(
        [
            (9, 9, 3, 64),
            (64,),
            (9, 9, 64, 16 * 6),
            (16, 6),
            (inputs, 6, 10 * 8),
            (10, 8),
        ]
    )


def test_values_replace_those_of_a_preset():
    for text in ("preset=svhn,primary_atoms=7", "primary_atoms=7,preset=svhn"):
        values = parse_overrides(HParams, text)
        assert values["primary_atoms"] == 7
        assert values["conv_channels"] == 64


def test_the_baseline_ignores_what_the_reference_gives_it():
    text = "padding=SAME,remake=false,num_prime_capsules=64"
    assert parse_overrides(baseline.HParams, text) == {"padding": "SAME"}
    for text in ("class_atoms=3", "preset=svhn"):
        with pytest.raises(UserError, match=text.partition("=")[0]):
            parse_overrides(baseline.HParams, text)
