import dataclasses

import pytest

from common import flags
from common.errors import UserError
from config import Config
from input_data.registry import Split


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"dataset": "mnist", "pad": 4, "distort": True}),
        ({"pad": 0}, {"dataset": "mnist", "pad": 0, "distort": True}),
        ({"dataset": "mnist"}, {"dataset": "mnist", "pad": 4}),
        ({"dataset": "svhn"}, {"dataset": "svhn", "pad": None}),
        ({}, {"viewpoints": "azimuth"}),
        ({"viewpoints": "elevation"}, {"viewpoints": "elevation"}),
    ],
)
def test_a_checkpoint_supplies_what_was_not_given(given, expected):
    training = {"dataset": "mnist", "pad": 4, "distort": True, "seed": 3}
    training["viewpoints"] = "azimuth"
    inherited = Config(**given).with_defaults_from(training)
    for name, value in expected.items():
        assert getattr(inherited, name) == value
    assert inherited.seed == 0


@pytest.mark.parametrize("name", ["huggingface:mnist", "kaggle:a/b:1.0.0"])
def test_a_checkpoint_names_no_data_set_that_may_run_code(name):
    training = {"dataset": f"tfds:{name}"}
    with pytest.raises(UserError, match=f"--dataset=tfds:{name}"):
        Config().with_defaults_from(training)
    Config(**training).with_defaults_from(training)
    Config().with_defaults_from({"dataset": "tfds:mnist/a:3.0.*"})
    Config().with_defaults_from({"dataset": "tfds:mnist:3.0.1"})


def test_overrides_of_hyper_parameters_add_up():
    given = ["--hparams_override=b=1, a=1", "--hparams_override=c=3,b=2"]
    config = flags.parse(Config, [*given, "--shift=1", "--shift=2"])
    assert config.hparams_override == "b=2, a=1,c=3"
    assert config.shift == 2  # of rows of experiments


def test_a_checkpoint_of_the_digits_supplies_nothing_for_files():
    given = Config(data_dir="x")
    assert given.with_defaults_from({"dataset": "digits", "pad": 4}) == given
    assert given.dataset_name == "mnist"
    assert Config().dataset_name == "digits"


def test_a_checkpoint_records_how_it_was_trained():
    recorded = Config(data_dir="x", shift=3, validate=True).run_settings()
    assert recorded["dataset"] == "mnist"
    assert recorded["of_files"]
    assert (recorded["shift"], recorded["validate"]) == (3, True)
    assert not {"data_dir", "checkpoint", "num_targets"} & recorded.keys()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("augment", True), ("batch_size", 7), ("color", True)),
        *(("crop_area", 0.5), ("dataset", "svhn"), ("distort", True)),
        *(("dtype_policy", "mixed_bfloat16"), ("flip", True)),
        *(("image_size", 9), ("max_steps", 6), ("pad", 3), ("resize", "crop")),
        *(("seed", 5), ("shift", 1), ("validate", True)),
        ("viewpoints", "azimuth"),
    ],
)
def test_each_setting_of_the_training_images_is_recorded(name, value):
    usual = Config().run_settings()
    changed = Config(**{name: value}).run_settings()
    assert changed == {**usual, name: value}
    assert usual[name] != value


@pytest.mark.parametrize(
    ("given", "shift", "pad"),
    [
        ({}, 2, 0),
        ({"dataset": "svhn"}, 0, 0),
        ({"augment": True}, 0, 0),
        ({"augment": True, "shift": 3, "pad": 1}, 3, 1),
        ({"num_targets": 2}, 4, 4),
        ({"num_targets": 2, "shift": 0, "pad": 0}, 0, 0),
    ],
)
def test_shift_and_pad_by_default(given, shift, pad):
    config = Config(**given)
    assert (config.shift_or_default, config.pad_or_default) == (shift, pad)


@pytest.mark.parametrize(
    ("validate", "train", "split"),
    [
        (False, True, Split.TRAIN),
        (False, False, Split.TEST),
        (True, True, Split.VALID_TRAIN),
        (True, False, Split.VALID_TEST),
    ],
)
def test_splits(validate, train, split):
    assert Config(validate=validate).split(train) is split


def test_members_of_an_ensemble():
    several = Config(checkpoint="a{}/b{}", num_trials=2)
    assert several.members == ["a0/b0", "a1/b1"]
    assert Config(checkpoint="a").members == ["a"]
    for wrong in (
        Config(checkpoint="a", num_trials=2),
        Config(checkpoint="a{}"),
    ):
        with pytest.raises(UserError, match="--num_trials"):
            _ = wrong.members


def test_the_evaluation_command_repeats_what_decides_the_images():
    settings = Config(
        data_dir="a b", max_steps=7, num_targets=2, summary_dir="c", shift=6
    )
    assert settings.evaluation_command() == (
        "python experiment.py --train=false '--data_dir=a b' --num_targets=2 "
        "--shift=6 --summary_dir=c"
    )
    validating = dataclasses.replace(settings, validate=True)
    assert "--validate=True" in validating.evaluation_command()
    own = dataclasses.replace(settings, model="my:Model", augment=True)
    assert "--model=my:Model" in own.evaluation_command()
    assert "augment" not in own.evaluation_command()
