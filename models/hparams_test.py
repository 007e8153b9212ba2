import math

import pytest

from common.errors import UserError
from common.flags import flag_specs
from config import Config
from models.hparams import parse_overrides
from models.table import MODELS, find_model

HParams = find_model("capsule").hparams


def test_wrong_strings_are_named():
    for text, name in (
        *(("routing=three", "routing=three"), ("leaky=yes", "leaky=yes")),
        *(("routing", "'routing'"), ("preset=svnh", "did you mean svhn")),
        *(("learning_rate=nan", "learning_rate="), ("loss_type=none", "loss_")),
        *(("learning_rate=1e39", "learning_rate="), ("kernel_size=65", "65")),
        *(("decay_rate=1e308", "_rate="), (f"decay_steps={10**23}", "_steps=")),
        ("routing=51", "routing=51 must be at least 1 and at most 50"),
    ):
        with pytest.raises(UserError, match=name):
            HParams(**parse_overrides(HParams, text))


def test_values_are_typed():
    svhn = HParams.PRESETS["svhn"]
    for text, expected in (
        ("", {}),
        (" routing=1 , leaky=True ", {"routing": 1, "leaky": True}),
        ("remake=0,learning_rate=1", {"remake": False, "learning_rate": 1.0}),
        ("preset=svhn", svhn),
        ("primary_atoms=7,preset=svhn", {**svhn, "primary_atoms": 7}),
    ):
        found = map(repr, parse_overrides(HParams, text).items())
        assert sorted(found) == sorted(map(repr, expected.items()))


@pytest.mark.parametrize("name", [None, *sorted(MODELS)])
def test_every_number_has_an_upper_bound(name):
    settings = find_model(name).hparams if name else Config
    for spec in flag_specs(settings).values():
        if spec.kind in (int, float):
            assert spec.allows(spec.default)
            assert not spec.allows(10**23 if spec.kind is int else math.inf)


def test_the_baseline_ignores_hyper_parameters_of_capsules():
    text = "padding=SAME,remake=false,num_prime_capsules=64"
    assert parse_overrides(find_model("baseline").hparams, text) == {
        "padding": "SAME"
    }
    with pytest.raises(UserError, match="class_atoms"):
        parse_overrides(find_model("baseline").hparams, "class_atoms=3")
