import dataclasses

import pytest

from input_data.features import ImageShape
from models import baseline
from models.capsule import HParams
from models.hparams import parse_overrides
from models.registry import build_model
from old.errors import UserError


def test_defaults_are_the_references():
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
    ("text", "message"),
    [
        ("rooting=1", "unknown hyper-parameter 'rooting'.*; valid names:"),
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
        ("rooting=1", r"'rooting' \(did you mean routing\?\)"),
        ("routing=٣", "routing=٣ is not a whole number"),
        ("routing=1_0", "routing=1_0 is not a whole number"),
        ("decay_rate=1_0.0", "is not a number"),
        ("routing=" + "9" * 5000, r"routing=9{60}\.\.\. \(5000 characters"),
        ("x" * 5000 + "=1", r"x{60}\.\.\. \(5000 characters\)"),
        ("preset=cifar", "unknown preset 'cifar'; valid names: svhn"),
        ("preset=svnh", r"'svnh' \(did you mean svhn\?\)"),
        ("preset=svhn,preset=svhn", "preset is given twice"),
        ("preset", "not of the form"),
    ],
)
def test_wrong_strings_say_what_would_be_right(text, message):
    with pytest.raises(UserError, match=message):
        parse_overrides(HParams, text)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"routing": 0}, "routing=0 must be at least 1 and at most 100"),
        ({"routing": 10**6}, "routing=1000000 must be at least 1 and at most"),
        ({"class_atoms": 10**15}, "must be at least 1 and at most 65,536"),
        ({"padding": "SMAE"}, r"VALID, SAME \(did you mean SAME\?\)"),
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


def test_values_beside_a_preset_go_before_its_own():
    for text in ("preset=svhn,primary_atoms=7", "primary_atoms=7,preset=svhn"):
        values = parse_overrides(HParams, text)
        assert values["primary_atoms"] == 7
        assert values["conv_channels"] == 64


def test_the_baseline_has_its_own_and_passes_over_the_references(capsys):
    text = "padding=SAME,remake=false,num_prime_capsules=64"
    assert parse_overrides(baseline.HParams, text) == {"padding": "SAME"}
    assert "no num_prime_capsules; it is passed over" in capsys.readouterr().out
    for text in ("class_atoms=3", "preset=svhn"):
        with pytest.raises(UserError, match="unknown hyper-param") as caught:
            parse_overrides(baseline.HParams, text)
        assert "did you mean preset" not in str(caught.value)
