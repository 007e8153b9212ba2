import pytest

from comparison.settings import Settings, own_flags, training
from models.registry import MODELS
from old.errors import UserError


def test_all_models_are_compared_unless_some_are_named():
    own = own_flags(["all --shift=1", "baseline-b --shift=0", "pooling"])
    assert Settings().names({}) == sorted(MODELS)
    assert Settings().names(own) == [*sorted(MODELS), "baseline-b"]
    some = Settings(models="capsule,baseline-b,baseline")
    assert some.names(own) == ["capsule", "baseline-b", "baseline"]


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ("capsul", "'capsul' .did you mean capsule"),
        ("capsul-b", "'capsul' .did you mean capsule"),
        (",", "--models=, names none; valid names: b"),
        ("capsule-b", "does not say what capsule-b is, such as --settings='c"),
        ("capsule-", "capsule-: a label is of up to 60 letters"),
        ("capsule-a/b", "capsule-a/b: a label is of up to"),
        (f"capsule-{'a' * 61}", "aaa.*: a label is of up to"),
    ],
)
def test_what_cannot_be_compared_is_named(models, message):
    with pytest.raises(UserError, match=message):
        Settings(models=models).names(own_flags(["capsule-c --shift=1"]))


def test_a_model_with_a_label_has_the_flags_of_all_and_its_own():
    own = own_flags(
        [
            "all --batch_size=16",
            "capsule --shift=1",
            "capsule-routing=1 --hparams_override=routing=1",
        ]
    )
    config = training(Settings(), "capsule-routing=1", own)
    assert config.model == "capsule"
    assert (config.batch_size, config.shift) == (16, Settings().shift)
    assert config.hparams_override == "routing=1"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"steps": 3}, "--output_dir is required"),
        ({"output_dir": "x"}, "either --minutes or --steps"),
        ({"output_dir": "x", "steps": 3, "minutes": 1.0}, "either --minutes"),
        (
            {"output_dir": "x", "steps": 3, "seed": 2**32 - 1, "seeds": 2},
            "the last seed, 4294967296, must be at least 0 and at most",
        ),
    ],
)
def test_a_folder_and_one_budget_are_needed(values, message):
    with pytest.raises(UserError, match=message):
        Settings(**values).require_complete()


def test_a_model_has_the_data_flags_and_its_own():
    settings = Settings(dataset="digits", shift=1, augment=True, steps=3)
    own = own_flags(
        [
            "all --batch_size=16 --dtype_policy=mixed_bfloat16",
            "baseline --batch_size=32 --noaugment "
            "--hparams_override='dense_units=8, first_channels=4'",
        ]
    )
    capsule = training(settings, "capsule", own)
    baseline = training(settings, "baseline", own)
    for config in (capsule, baseline):
        assert config.dataset == "digits"
        assert config.shift == 1
        assert config.dtype_policy == "mixed_bfloat16"
    assert (capsule.batch_size, baseline.batch_size) == (16, 32)
    assert (capsule.augment, baseline.augment) == (True, False)
    assert (capsule.model, baseline.model) == ("capsule", "baseline")
    assert baseline.hparams_override == "dense_units=8, first_channels=4"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("baselin --shift=1", "unknown model 'baselin'"),
        ("baseline-a/b --shift=1", "baseline-a/b: a label is of up"),
        ("baseline --shift='1", "is not a model's name and flags"),
        ("baseline --nonsense=1", "--settings of baseline: .*nonsense"),
        ("baseline --augment false", "of baseline: not a flag: false"),
        ("all --max_steps=7", "--max_steps is not for single models"),
        ("all --eval_every=7", "--eval_every is not for single models"),
        ("baseline --dataset=mnist", "--dataset is not for single models"),
        ("baseline --color", "--color is not for single models"),
        ("baseline --distort", "--distort is not for single models"),
        (
            "baseline --hparams_override=rooting=1",
            "baseline: .*unknown hyper-parameter 'rooting'",
        ),
    ],
)
def test_wrong_settings_are_named(line, message):
    with pytest.raises(UserError, match=message):
        training(Settings(), "baseline", own_flags([line]))
