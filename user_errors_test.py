"""Bad input ends a command with one line that names the file or the flag."""

import pytest

import experiment
from common.errors import exit_on_user_error
from config import Config
from testing import untrained
from testing.commands import run
from testing.tiny_files import write_cifar10, write_idx


def message_of(capsys, **settings):
    """The line with which experiment.py ends."""
    with pytest.raises(SystemExit) as stop, exit_on_user_error("experiment.py"):
        experiment.run(Config(**settings))
    assert "Traceback" not in capsys.readouterr().err
    return stop.value.code


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({}, "--summary_dir"),
        ({"checkpoint": "x"}, "--checkpoint"),
        ({"train": False, "num_trials": 2}, "--num_trials"),
        ({"train": False, "num_trials": 2, "checkpoint": "x"}, "--num_trials"),
        ({"train": False, "checkpoint": "none/model.ckpt-1"}, "none"),
        ({"data_dir": "none"}, "none"),
        ({"dataset": "norb", "num_targets": 2}, "norb"),
        ({"image_size": 9}, "--image_size"),
        ({"hparams_override": "rooting=1"}, "rooting"),
        ({"hparams_override": "routing=0"}, "routing=0"),
        ({"num_gpus": 64}, "--num_gpus=64"),
        ({"device": "gpu:7"}, "--device=gpu:7"),
        ({"num_processes": 2}, "--num_processes=2"),
        ({"pairs": "below", "num_targets": 2}, "--pairs"),
    ],
)
def test_wrong_settings(tmp_path, capsys, settings, name):
    folder = str(tmp_path / "run") if settings else None
    if settings.get("checkpoint") and not settings.get("train", True):
        folder = None
    message = message_of(capsys, summary_dir=folder, **settings)
    assert message.startswith("experiment.py: ")
    assert name in message
    assert "\n" not in message


@pytest.mark.parametrize(
    "change", ["size", "truncated", "foreign", "tf1", "text"]
)
def test_wrong_files(tmp_path, capsys, change):
    write_idx(tmp_path)
    network, architecture = untrained.small()
    path = untrained.save(tmp_path, network, architecture)
    settings = {"train": False, "checkpoint": path, "data_dir": str(tmp_path)}
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    name = "model.ckpt-0"
    if change == "size":
        write_cifar10(tmp_path)
        settings["dataset"] = "cifar10"
    elif change == "truncated":
        images = next(tmp_path.glob("t10k-images*"))
        before[images] = b"\0" * 20
        images.write_bytes(before[images])
        name = images.name
    elif change == "foreign":
        settings |= {"model": "baseline", "dataset": "mnist"}
    elif change == "tf1":
        for suffix in (".index", ".data-00000-of-00001"):
            (tmp_path / f"tf1{suffix}").write_bytes(b"none")
        settings["checkpoint"] = str(tmp_path / "tf1")
        name = "tf1"
    else:
        settings["checkpoint"] = str(next(tmp_path.glob("t10k-labels*")))
        name = "t10k-labels"
    message = message_of(capsys, **settings)
    assert name in message
    assert "\n" not in message
    assert all(p.read_bytes() == content for p, content in before.items())


@pytest.mark.parametrize(
    "arguments",
    [["--max_stepps=3"], ["--max_steps=0"], ["--format=xml"], ["word"]],
)
def test_wrong_flags(arguments):
    code, output, errors = run("experiment.py", *arguments)
    assert (code, output) == (1, "")
    (line,) = errors.splitlines()
    assert arguments[0].strip("-").partition("=")[0] in line


def test_debug_shows_the_traceback():
    code, _, errors = run("experiment.py", "--debug", "--num_trials=3")
    assert code == 1
    assert "Traceback" in errors
