import pathlib
import re
import shlex

import numpy as np

import experiment
from demonstration import exhibit
from input_data.generators.job import Job
from models import registry
from models.hparams import parse_overrides
from models.registry import model_class
from old import flags
from testing.small_models import overrides
from training.config import Config

README = pathlib.Path(__file__).with_name("README.md")
DOCS = README.with_name("docs")
ARCHITECTURE = DOCS / "architecture.md"
PREDICT = DOCS / "predict.md"


def python_blocks(page):
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    assert blocks
    return blocks


def commands(program):
    """The arguments of a program wherever a page shows a command of it."""
    pages = [README, *sorted(DOCS.glob("*.md"))]
    blocks = [
        block
        for page in pages
        for block in re.findall(r"```shell\n(.*?)```", page.read_text(), re.S)
    ]
    for line in "\n".join(blocks).replace("\\\n", " ").splitlines():
        for command in re.split("&&|&$", line):
            words = shlex.split(command, comments=True)
            if program in words:
                yield words[words.index(program) + 1 :]


def test_the_pages_commands_are_understood():
    numbers = {"experiment.py": 0, "input_data/mnist/mnist_shift.py": 0}
    for program in numbers:
        for arguments in commands(program):
            numbers[program] += 1
            if program != "experiment.py":
                flags.parse(Job, arguments)
                continue
            config = flags.parse(Config, arguments)
            parse_overrides(
                model_class(config.model or "capsule").HParams,
                config.hparams_override,
            )
    assert min(numbers.values()) >= 3


def test_the_references_commands_stand_there():
    """As its README has them, but for the names of the folders."""
    shown = {" ".join(arguments) for arguments in commands("experiment.py")}
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


def test_a_checkpoint_in_python(tmp_path, capsys):
    config = Config(
        batch_size=16,
        hparams_override=overrides("capsule"),
        max_steps=2,
        summary_dir=str(tmp_path),
    )
    experiment.run(config)
    capsys.readouterr()
    names = {}
    *_, block = python_blocks(PREDICT)
    exec(block.replace("/tmp/digits", str(tmp_path)), names)
    plain, turned, attacked = map(int, capsys.readouterr().out.split()[-3:])
    assert plain < attacked
    assert 0 < turned <= 100
    assert names["couplings"].shape == (3, 100, 6, 6, 2, 10)
    np.testing.assert_allclose(np.sum(names["couplings"], -1), 1, rtol=1e-5)
    assert names["outputs"]["capsules"].shape == (100, 10, 5)


def test_a_model_of_ones_own(tmp_path, monkeypatch, capsys):
    (block,) = python_blocks(ARCHITECTURE)
    (tmp_path / "small.py").write_text(block)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(registry.MODELS, "small", ("small", "SmallModel"))
    folder = str(tmp_path / "run")
    experiment.run(
        Config(
            model="small",
            hparams_override="types=2,atoms=4",
            batch_size=16,
            max_steps=2,
            summary_dir=folder,
        )
    )
    config = Config(train=False, checkpoint=folder)
    score = experiment.run(config)
    assert score.num_examples == 360
    shown = exhibit.load(config).look(np.zeros((28, 28, 1), "float32"))
    assert len(shown["lengths"]) == 10


def test_the_library_part_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {
        "images": np.zeros((2, 28, 28, 1), "float32"),
        "labels": np.eye(10)[:2],
    }
    small = "num_classes=10, conv_channels=4, num_prime_capsules=2"
    for block in python_blocks(README):
        exec(block.replace("num_classes=10", small), names)
    assert names["network"].output_shape == (None, 10)
