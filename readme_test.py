"""The commands and Python blocks of README.md and docs/ work."""

import pathlib
import re
import shlex
import shutil
import sys

import keras
import numpy as np
import pytest

import experiment
from common import flags
from common.errors import UserError
from config import Config
from models.hparams import parse_overrides
from models.table import find_model
from testing import untrained
from testing.commands import output_of
from testing.photographs import write_photographs

ROOT = pathlib.Path(__file__).parent
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]


def blocks(language, page):
    return re.findall(
        rf"```{language}\n(.*?)```", page.read_text(), flags=re.DOTALL
    )


PAGES_WITH_PYTHON = [page for page in PAGES if blocks("python", page)]


def commands(program):
    """The arguments of every command of a program on the pages."""
    text = "\n".join(block for page in PAGES for block in blocks("shell", page))
    for line in text.replace("\\\n", " ").splitlines():
        for command in re.split("&&|&$", line):
            words = shlex.split(command, comments=True)
            if program in words:
                yield words[words.index(program) + 1 :]


def test_the_commands_of_experiments_parse():
    parsed = [flags.parse(Config, words) for words in commands("experiment.py")]
    assert len(parsed) >= 3
    for config in parsed:
        hparams = find_model(config.model or "capsule").hparams
        hparams(**parse_overrides(hparams, config.hparams_override))


@pytest.mark.parametrize("page", PAGES_WITH_PYTHON, ids=lambda page: page.stem)
def test_python_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_arrays").mkdir()
    names = {"numpy": np, "labels": np.eye(10)[:2]}
    names["images"] = np.zeros((2, 28, 28, 1), "float32")
    small = "num_classes=10, conv_channels=4, num_prime_capsules=2"
    for block in blocks("python", page):
        if "models.table" in block:
            model = write_own_model(block, tmp_path)
            _train_own("model", model, 360, monkeypatch, tmp_path)
        elif "def load(split" in block:
            (tmp_path / "bars.py").write_text(block)
            _train_own("dataset", "bars:load", 300, monkeypatch, tmp_path)
        elif 'load_model("/tmp' not in block:  # that needs an exported network
            block = block.replace("num_classes=10", small, 1)
            if "/tmp/digits" in block:
                path = untrained.save(tmp_path, *untrained.small())
                block = block.replace("/tmp/digits", path)
            exec(block, names)


@pytest.mark.slow
def test_the_commands_for_own_images_run(tmp_path):
    write_photographs(tmp_path / "my_images", {"cat": 20, "dog": 12, "fox": 5})
    shutil.copy(tmp_path / "my_images/cat/0000.jpg", tmp_path / "new.jpg")
    page = (ROOT / "docs" / "own_images.md").read_text()
    page = page.replace("/tmp/", f"{tmp_path}/")
    page = page.replace("=60", "=3 --hparams_override=channels=2")
    page = page.replace("--eval_every=20", "--eval_every=1")
    lines = re.findall("^python (.*)", page, re.MULTILINE)
    commands = (shlex.split(f"{ROOT}/{line}") for line in lines)
    texts = [output_of(*words, cwd=tmp_path) for words in commands]
    parts = "/best", "balanced", "(11 test", "robustness.png", "new.jpg", ""
    for text, part in zip(texts, parts, strict=True):
        assert part in text
    assert keras.models.load_model(tmp_path / "mine" / "network.keras")


def write_own_model(block, folder):
    """Writes the module that a page defines; returns MODULE:NAME."""
    (module,) = re.findall(r'^"""(\w+)\.py:', block)
    (name,) = re.findall(r"^(\w+) = Model\(", block, re.MULTILINE)
    (folder / f"{module}.py").write_text(block)
    return f"{module}:{name}"


def _train_own(flag, name, num_examples, monkeypatch, folder):
    monkeypatch.setattr(sys, "path", [*sys.path])
    run = str(folder / flag)
    training = Config(**{flag: name}, max_steps=1, summary_dir=run)
    experiment.run(training)
    score = experiment.run(Config(**{flag: name}, train=False, checkpoint=run))
    assert score.num_examples == num_examples
    command = training.evaluation_command()
    assert command.startswith(f"python {ROOT / 'experiment.py'} ")
    assert f"--{flag}={name}" in command
    # The name in a checkpoint is not enough to import the module.
    module = name.partition(":")[0]
    del sys.modules[module]
    with pytest.raises(UserError, match=f"--{flag}={name}"):
        experiment.run(Config(train=False, checkpoint=run))
    assert module not in sys.modules


@pytest.mark.slow
def test_commands_accept_a_model_in_a_file(tmp_path):
    blocks_of_page = blocks("python", ROOT / "docs" / "architecture.md")
    (block,) = (b for b in blocks_of_page if "models.table" in b)
    model = write_own_model(block, tmp_path)

    def run(program, *arguments):
        return output_of(ROOT / program, *arguments, cwd=tmp_path)

    compared = run(
        *("compare.py", f"--models={model}-two", "--dataset=digits"),
        f"--settings={model}-two --batch_size=8 --hparams_override=types=2",
        *("--eval_size=20", "--steps=4", f"--output_dir={tmp_path}/out"),
    )
    assert "| KMeans-two |" in compared
    folder = tmp_path / "out" / "KMeans-two" / "0"
    flags = f"--model={model}", "--hparams_override=types=2", "--max_steps=6"
    resumed = run("experiment.py", f"--summary_dir={folder}", *flags)
    assert re.search(r"Resuming from .*model.ckpt-4", resumed)
    arguments = f"--checkpoint={folder}", f"--model={model}", "--export=a.keras"
    run("predict.py", *arguments)
    assert (tmp_path / "a.keras").is_file()
