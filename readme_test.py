"""The commands and Python blocks of README.md and docs/ work."""

import pathlib
import re
import shlex

import numpy as np
import pytest

import experiment
from common import flags
from config import Config
from models import registry
from models.hparams import parse_overrides
from models.registry import model_class
from testing.small_models import overrides

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
        hparams = model_class(config.model or "capsule").HParams
        hparams(**parse_overrides(hparams, config.hparams_override))


def test_the_references_commands_are_shown():
    shown = {" ".join(words) for words in commands("experiment.py")}
    mnist, cifar = "--data_dir=$DATA_DIR/mnist_data/", "--data_dir=$DATA_DIR"
    of_cifar = (
        "--dataset=cifar10 --hparams_override=num_prime_capsules=64,"
        "padding=SAME,leaky=true,remake=false"
    )
    assert {
        f"{mnist} --train=false --summary_dir=/tmp/ "
        "--checkpoint=$CKPT_DIR/mnist_checkpoint/model.ckpt-1",
        f"{cifar} --train=false {of_cifar} --summary_dir=/tmp/ "
        "--checkpoint=$CKPT_DIR/cifar/cifar{}/model.ckpt-600000 "
        "--num_trials=7",
        f"{mnist} --max_steps=300000 --summary_dir=/tmp/attempt0/",
        f"{mnist} --max_steps=300000 --summary_dir=/tmp/attempt1/ "
        "--model=baseline",
    } <= shown


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """The folder of a tiny training on the digits."""
    folder = str(tmp_path_factory.mktemp("digits"))
    small = overrides("capsule")
    experiment.run(
        Config(max_steps=2, hparams_override=small, summary_dir=folder)
    )
    return folder


@pytest.mark.parametrize("page", PAGES_WITH_PYTHON, ids=lambda page: page.stem)
def test_python_blocks_run(page, request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_arrays").mkdir()
    names = {
        "numpy": np,
        "images": np.zeros((2, 28, 28, 1), "float32"),
        "labels": np.eye(10)[:2],
    }
    small = "num_classes=10, conv_channels=4, num_prime_capsules=2"
    for block in blocks("python", page):
        if "(Classifier)" in block:
            _train_own_model(block, monkeypatch, tmp_path)
        elif 'load_model("/tmp' not in block:  # that needs an exported network
            block = block.replace("num_classes=10", small)
            if "/tmp/digits" in block:
                folder = request.getfixturevalue("digits")
                block = block.replace("/tmp/digits", folder)
            exec(block, names)


def _train_own_model(block, monkeypatch, folder):
    """Trains and evaluates the model that a page defines."""
    (folder / "own_model.py").write_text(block)
    monkeypatch.syspath_prepend(folder)
    (name,) = re.findall(r"class (\w+)\(Classifier\)", block)
    monkeypatch.setitem(registry.MODELS, "own", ("own_model", name))
    run = str(folder / "run")
    experiment.run(
        Config(model="own", batch_size=16, max_steps=2, summary_dir=run)
    )
    score = experiment.run(Config(train=False, checkpoint=run))
    assert score.num_examples == 360
