import dataclasses
import shlex

import pytest
from absl.flags import Error

from input_data.generators.job import Job
from input_data.options import Options, _data_flag
from old import flags, tables
from old.fields import meanings
from training.config import EVAL_BATCH_SIZE, Config

EVALUATED = [
    name
    for name, (*_, meaning) in meanings(Config).items()
    if meaning.evaluated
]


def parsed(command):
    """The settings that a printed command gives."""
    program, *arguments = shlex.split(command)
    assert [program, arguments[0]] == ["python", "experiment.py"]
    return flags.parse(Config, arguments[1:])


def another_value(name):
    """An allowed one that is not the default."""
    kind, default, meaning = meanings(Config)[name]
    candidates = {
        bool: [not default],
        int: [1, 2, 13],
        str: ["it's here", "mnist", *meaning.choices],
    }
    for value in candidates[kind]:
        if value != default and meaning.allows(value):
            return value
    raise AssertionError(f"no other value for --{name}")


def test_evaluation_takes_every_data_flag_of_the_training():
    # But what is for training images alone.
    assert set(meanings(Options)) - set(EVALUATED) == {"augment"}
    config = Config(**{name: another_value(name) for name in EVALUATED})
    again = parsed(config.evaluation_command())
    assert again == dataclasses.replace(config, train=False)
    config = Config(max_steps=3, batch_size=2, hparams_override="routing=1")
    assert parsed(config.evaluation_command()) == Config(train=False)


def test_defaults_are_the_references():
    assert {
        "batch_size": 128,
        "eval_interval": 60,
        "eval_size": 10_000,
        "eval_timeout": 6 * 3600,
        "max_steps": 1000,
        "num_gpus": 1,
        "num_trials": 1,
        "save_step": 1500,
        "train": True,
        "validate": False,
    }.items() <= dataclasses.asdict(Config()).items()
    assert EVAL_BATCH_SIZE == 100
    assert dataclasses.asdict(Job()) == {
        "data_dir": None,
        "dataset": "mnist",
        "max_shard": 0,
        "multi_targets": False,
        "num_pairs": 1000,
        "pad": 0,
        "seed": 0,
        "shift": 2,
        "split": "valid_train",
    }


def test_a_checkpoint_records_what_decides_how_it_was_trained():
    recorded = Config(seed=3, shift=1, summary_dir="x").recorded()
    assert {
        "batch_size": 128,
        "dataset": "digits",
        "dtype_policy": "float32",
        "max_steps": 1000,
        "pad": None,
        "seed": 3,
        "shift": 1,
        "validate": False,
    }.items() <= recorded.items()
    assert not {"data_dir", "device", "summary_dir"} & set(recorded)
    assert Config(data_dir="x").recorded()["dataset"] == "mnist"


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--model=capsul", r"<baseline|capsule.*> \(did you mean capsule\?\)"),
        ("--model=x", r"one of <baseline|capsule.*>$"),
        ("--batch_size=many", "--batch_size=many"),
        ("--batch_size=131073", r"range \[1, 131072\]"),
        ("--num_gpus=1000000000", r"range \[1, 1024\]"),
        ("--num_trials=1000000000000", r"range \[1, "),
        ("--eval_size=10000000000000", r"range \[1, 1000000000\]"),
        ("--image_size=16385", r"range \[1, 16384\]"),
        ("--summary_dir=a\udcff", "summary_dir=a.*: must be a name in UTF-8"),
        ("--eval_interval=nan", "--eval_interval=nan: is not a number"),
        ("--seed=5000000000", "--seed=5000000000"),
        ("--device=tpu", "must be cpu, gpu or gpu:NUMBER"),
        (
            "--dataset=minst",
            r"one of affnist, .*tfds:NAME \(did you mean mnist\?\)",
        ),
    ],
)
def test_wrong_flags_say_what_would_be_right(argument, message):
    with pytest.raises(Error, match=message):
        flags.parse(Config, [argument])


@dataclasses.dataclass(frozen=True)
class WithZoom(Config):
    """As if this field stood in `Options`, in the one place for a flag."""

    zoom: int = _data_flag(1, "Times that images grow.", at_least=1, at_most=4)


def test_a_data_flag_is_added_in_one_place():
    config = flags.parse(WithZoom, ["--zoom=3"])
    assert config.zoom == 3
    with pytest.raises(Error, match=r"--zoom=5: .* range \[1, 4\]"):
        flags.parse(WithZoom, ["--zoom=5"])
    table = tables.flags_table(WithZoom)
    assert "| `--zoom` | 1 | Times that images grow. |" in table
    assert config.recorded()["zoom"] == 3
    command = config.evaluation_command()
    assert flags.parse(WithZoom, shlex.split(command)[2:]).zoom == 3
