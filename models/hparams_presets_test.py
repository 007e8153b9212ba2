import pytest

from common.errors import UserError
from input_data.features import ImageShape
from models.hparams import HParams, parse_overrides
from models.registry import build_model


def test_the_svhn_preset_is_the_papers_smaller_network():
    """Section 7: 64 channels, 16 types of 6 atoms, 8 atoms for a class."""
    assert parse_overrides("preset=svhn") == {
        "conv_channels": 64,
        "num_prime_capsules": 16,
        "primary_atoms": 6,
        "class_atoms": 8,
    }
    hparams = HParams(**parse_overrides("preset=svhn,remake=false"))
    model = build_model("capsule", ImageShape(32, 32, 3, 10), 1, hparams)
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
        values = parse_overrides(text)
        assert values["primary_atoms"] == 7
        assert values["conv_channels"] == 64


def test_the_defaults_are_the_papers_figure_1():
    hparams = HParams()
    assert hparams.conv_channels == 256
    assert hparams.primary_atoms == 8
    assert hparams.class_atoms == 16


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("preset=cifar", "unknown preset 'cifar'; valid names: svhn"),
        ("preset=svhn,preset=svhn", "preset is given twice"),
        ("preset", "not of the form"),
        ("primary_atoms=0", "primary_atoms=0 must be at least 1"),
    ],
)
def test_wrong_presets_are_refused(text, message):
    with pytest.raises(UserError, match=message):
        HParams(**parse_overrides(text))
