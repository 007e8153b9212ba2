import dataclasses

import pytest

from common import flags
from common.errors import UserError
from config import Config


def test_overrides_of_hyper_parameters_add_up():
    given = ["--hparams_override=b=1, a=1", "--hparams_override=c=3,b=2"]
    config = flags.parse(Config, [*given, "--shift=1", "--shift=2"])
    assert config.hparams_override == "b=2, a=1,c=3"
    assert config.shift == 2  # of rows of experiments


def test_members_of_an_ensemble():
    several = Config(checkpoint="a{}/b{}", num_trials=2)
    assert several.members == ["a0/b0", "a1/b1"]
    assert Config(checkpoint="a").members == ["a"]
    for path, num_trials in (("a", 2), ("a{}", 1)):
        wrong = Config(checkpoint=path, num_trials=num_trials)
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
