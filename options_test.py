"""Every option of every command has an effect or is refused."""

import ast
import dataclasses
import functools
import itertools
import pathlib
import re
import runpy

import pytest

from architecture_test import COMMANDS, MODULES, PACKAGES, product_files
from common.errors import UserError
from config import DATA_FLAGS, EVALUATION_FLAGS, Config
from input_data import registry
from resolve import RECORDED, recorded, with_defaults
from testing import tiny_files

ROOT = pathlib.Path(__file__).parent
OTHER_VALUES = (
    {"augment": True, "batch_size": 7, "color": True, "crop_area": 0.3}
    | {"class_weight": "balanced", "crops": 13, "data_dir": "other"}
    | {"dataset": "fashion_mnist"}
    | {"distort": True, "dtype_policy": "mixed_bfloat16", "eval_size": 3}
    | {"flip": True, "image_size": 14, "max_steps": 6, "num_targets": 2}
    | {"pad": 3, "pairs": "beside", "resize": "stretch", "seed": 5}
    | {"shift": 1, "validate": True, "viewpoints": "azimuth"}
)
# Why data are refused, for these values.
REASONS = {"data_dir": "other", "dataset": "--data_dir|TFDS|--image_size"}
# Their own data sets have tests of them; --augment of figures.py is of 1.0.0.
IN_OTHER_TESTS = {"augment", "crops", "data_dir", "dataset", "viewpoints"}
BASES = {
    "digits": {"dataset": "digits"},
    "pairs of digits": {"dataset": "digits", "num_targets": 2},
    "images": {"dataset": "images", "image_size": 16},
}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """A folder of images."""
    folder = tmp_path_factory.mktemp("images")
    tiny_files.write_images(folder)
    return str(folder)


@functools.cache
def content(config, train):
    """The bytes of the first batches, or the text of the UserError."""
    try:
        pipeline = registry.load(with_defaults(config), train)
    except UserError as error:
        return str(error)
    batches = pipeline.evaluation_batches(4)
    if train:
        batches = pipeline.training_batches(6, config.seed, 0, 2)
    values = [v for batch in batches for half in batch for v in half.values()]
    return b"".join(memoryview(value).tobytes() for value in values)


def effect(base, flag, data_dir, train):
    """What another value of a flag does: "none", "change" or "refusal"."""
    values = {"eval_size": 9, "train": train, **BASES[base]}
    values |= {"data_dir": data_dir} if base == "images" else {}
    usual = Config(**values)
    other = dataclasses.replace(usual, **{flag: OTHER_VALUES[flag]})
    before, after = content(usual, train), content(other, train)
    assert isinstance(before, bytes)
    if isinstance(after, str):
        assert re.search(REASONS.get(flag, f"--{flag}="), after)
        return "refusal"
    return "none" if before == after else "change"


@pytest.mark.parametrize("flag", DATA_FLAGS)
def test_every_data_flag_changes_the_images_or_is_refused(flag, data_dir):
    bases = [b for b in BASES if BASES[b].get(flag) != OTHER_VALUES[flag]]
    in_training = [effect(base, flag, data_dir, True) for base in bases]
    in_tests = [effect(base, flag, data_dir, False) for base in bases]
    assert ("none", "none") not in zip(in_training, in_tests, strict=True)
    if flag not in IN_OTHER_TESTS:
        assert ("change" in in_tests) == (flag in EVALUATION_FLAGS)


@pytest.mark.parametrize("name", RECORDED)
def test_each_setting_of_the_training_images_is_recorded(name):
    dataset = "norb" if name == "viewpoints" else "images"
    given = {"dataset": dataset, "data_dir": "x"}
    before = recorded(Config(**given))
    value = OTHER_VALUES[name]
    assert recorded(Config(**given | {name: value})) == before | {name: value}
    assert before[name] != value
    assert before["of_files"]
    assert not {"data_dir", "checkpoint", "num_targets"} & before.keys()


@functools.cache
def names_read(path):
    """The attributes that a file of Python reads."""
    return {
        node.attr
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_read(command, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", [f"{command}.py", "--help"])
    with pytest.raises(SystemExit):
        runpy.run_path(f"{ROOT / command}.py", run_name="__main__")
    text = capsys.readouterr().out
    given = {*re.findall(r"^  --(?:\[no\])?(\w+):", text, flags=re.M)}
    files = map(product_files, [*PACKAGES, *MODULES, command])
    read = map(names_read, itertools.chain.from_iterable(files))
    assert given - set().union(*read) == set()
    if command in ("demo", "figures", "robustness"):  # they do not train
        assert not given & {*DATA_FLAGS} - {*EVALUATION_FLAGS}
