"""Experiments, their runs, and the pages made from what they wrote."""

import dataclasses
import json
import math
import pathlib
import shutil

import keras
import pytest

import checkpoints
import reproduce as command
from models.hparams import parse_overrides
from models.registry import model_class
from old.errors import UserError
from old.tables import between
from reproduction import report, run
from reproduction.experiments import EXPERIMENTS, Evaluation, Experiment
from testing.mnist_files import write_mnist
from testing.small_models import overrides

TINY = Experiment(
    name="tiny",
    title="tiny images",
    dataset="mnist",
    max_steps=2,
    hparams=overrides("shared_capsule"),
    flags="--model=shared_capsule --summary_step=1",
    published=12.5,
    source="somebody",
    others=(
        Evaluation("pairs", "--num_targets=2 --pairs=below --eval_size=30"),
    ),
    members=2,
)


def test_published_figures_have_their_sources():
    theirs, others = (
        Evaluation("pairs", "", 3.0, source) for source in (None, "others")
    )
    assert TINY.figure() == "12.5 % (somebody)"
    assert TINY.figure(theirs) == "3 % (somebody)"
    assert TINY.figure(others) == "3 % (others)"
    assert TINY.figure(TINY.others[0]) == "not published"


@pytest.fixture
def places(tmp_path, monkeypatch):
    """A machine and a folder for results; a process each would take long."""

    def in_own_process(do, *given):
        policy = keras.config.dtype_policy()
        found = do(*given)
        assert keras.config.dtype_policy().name == given[0].dtype_policy
        keras.config.set_dtype_policy(policy)
        return found

    monkeypatch.setattr(run, "in_own_process", in_own_process)
    mnist = tmp_path / "data" / "mnist"
    mnist.mkdir(parents=True)
    write_mnist(mnist, 20, 40)
    machine = run.Machine(
        data_dir=str(tmp_path / "data"),
        work_dir=str(tmp_path / "work"),
        batch_size=64,
        dtype_policy="mixed_bfloat16",
    )
    return machine, str(tmp_path / "out")


def test_runs_are_written_down_and_not_done_again(
    places, tmp_path, capsys, monkeypatch
):
    machine, output_dir = places
    run.reproduce(TINY, [0, 1], machine, output_dir)
    runs, ensemble = run.read(output_dir, TINY)
    assert list(runs) == [0, 1]
    first = runs[0]
    assert first["steps"] == 4
    assert first["examples"] == ensemble["examples"] == 40
    assert [point["step"] for point in first["points"]] == [4]
    assert first["points"][0]["wrong"] == first["wrong"]
    assert first["others"]["pairs"]["examples"] == 30
    assert first["training_seconds"] > 0
    assert first["command"].startswith(
        "python experiment.py --data_dir=$DATA_DIR/mnist --dataset=mnist --bat"
    )
    commands = [first, first["others"]["pairs"], ensemble]
    for found in commands:
        assert "--dtype_policy=mixed_bfloat16" in found["command"]
        assert "$DATA_DIR/mnist" in found["command"]
    folder = "$WORK_DIR/tiny/mixed_bfloat16/64"
    assert f"--summary_dir={folder}/0" in first["command"]
    assert f"{folder}/{{}}/train/model.ckpt-4" in ensemble["command"]
    assert machine.data_dir not in json.dumps([runs, ensemble])
    assert machine.work_dir not in json.dumps([runs, ensemble])
    assert report.machine_of(first).endswith(", mixed_bfloat16")
    longer = dataclasses.replace(TINY, max_steps=7)
    message = (
        "ckpt-4 was trained by max_steps=4, this experiment is by 14: name"
    )
    with pytest.raises(UserError, match=message):
        run.reproduce(longer, [0], machine, str(tmp_path / "other"))
    faster = dataclasses.replace(
        TINY, hparams=f"{TINY.hparams},learning_rate=1"
    )
    with pytest.raises(UserError, match="by learning_rate=0.001, this exp"):
        run.reproduce(faster, [0], machine, str(tmp_path / "other"))
    moved = dataclasses.replace(TINY, flags=f"{TINY.flags} --shift=1")
    with pytest.raises(UserError, match="trained by shift=None, this exp.* 1:"):
        run.reproduce(moved, [0], machine, str(tmp_path / "other"))
    config = run.training_of(TINY, 0, machine)
    # A checkpoint of a version that had no --pad yet.
    checkpoint = checkpoints.open(run.checkpoint_of(config))
    del checkpoint.training["pad"]
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "newest_sound", lambda _: checkpoint)
        run._require_same_training(config)
        padded = dataclasses.replace(config, pad=3)
        with pytest.raises(UserError, match="trained by pad=None, this exp"):
            run._require_same_training(padded)
    capsys.readouterr()
    run.reproduce(TINY, [0, 1], machine, output_dir)
    assert "Trained" not in capsys.readouterr().out
    # Results that came from elsewhere.
    ensemble = pathlib.Path(output_dir) / "tiny" / "ensemble.json"
    ensemble.unlink()
    member = pathlib.Path(machine.work_dir, *folder.split("/")[1:], "1")
    shutil.rmtree(member)
    run.reproduce(TINY, [0, 1], machine, output_dir)
    assert f"no ensemble without ['{member}" in capsys.readouterr().out
    assert not ensemble.exists()


def result(wrong, examples=1000, **others):
    return {
        "command": "python experiment.py",
        "seed": 0,
        "steps": 9380,
        "batch_size": 128,
        "machine": {"cores": 2, "device": "CPU", "backend": "tensorflow 2"},
        "training_seconds": 600,
        "examples": examples,
        "wrong": wrong,
        "points": [
            {"step": 469, "wrong": 2 * wrong},
            {"step": 938, "wrong": wrong},
        ],
        "others": others,
    }


def write(folder, name, *results):
    (folder / name).mkdir()
    for seed, found in enumerate(results):
        text = json.dumps({**found, "seed": seed})
        (folder / name / f"{seed}.json").write_text(text)


def test_the_table_is_what_the_files_say(tmp_path):
    write(tmp_path, "mnist-3", result(3), result(5))
    pairs = {"examples": 900, "wrong": 90, "confident": 720}
    write(
        tmp_path,
        "shared-capsule",
        result(8, **{"pairs below each other": pairs}),
    )
    by_name = report.table(tmp_path).splitlines()
    (found,) = (line for line in by_name if "`mnist-3`" in line)
    assert "| 0.25 % (Sabour" in found
    assert "| 0.40 ± 0.14 % | 0, 1 | 9,380 | 10 | 2 of CPU, tens" in found
    (place,) = (n for n, line in enumerate(by_name) if "`shared-c" in line)
    assert (
        "| 5 % (Su 2018) | 10.00 % (both above 0.5: 20.00 %)"
        in (by_name[place + 1])
    )
    (missing,) = (line for line in by_name if "`svhn`" in line)
    assert "not run: its data were not at hand" in missing
    assert "0.40 ± 0.14 % (2 seeds, 9,380 steps)" in report.short_table(
        tmp_path
    )
    write(tmp_path, "mnist-1-plain", result(3), {**result(5), "steps": 1173})
    assert "(2 seeds, 1,173 or 9,380 steps)" in report.short_table(tmp_path)
    (tmp_path / "mnist-3" / "1.json").unlink()
    mixed = {**result(5), "command": "python x --dtype_policy=mixed_bfloat16"}
    write(tmp_path, "mnist-1", result(3), mixed)
    assert "9,380 steps, float32 or mixed_bfloat16)" in report.short_table(
        tmp_path
    )
    write(tmp_path, "multimnist", result(9))
    write(tmp_path, "multimnist-small", result(7))
    assert "`multimnist-small`" in report.table(tmp_path)
    short = report.short_table(tmp_path)
    assert "`multimnist`" in short
    assert "`multimnist-small`" not in short
    assert report.picture(tmp_path, ["svhn", "mnist-3"]).startswith(b"\x89PNG")
    assert report.picture(tmp_path, ["svhn"]) is None


def test_the_documents_are_what_the_files_give():
    results = command.PAGE.with_suffix("")
    for document, text in command.tables(results).items():
        found = document.read_text()
        assert between(found, "results", text) == found


def test_a_folder_without_results_makes_no_tables(tmp_path):
    before = command.PAGE.read_bytes()
    with pytest.raises(UserError, match=f"dir={tmp_path} has no results"):
        command.write_tables(str(tmp_path))
    assert command.PAGE.read_bytes() == before


def test_a_file_that_is_no_result_is_named(tmp_path):
    write(tmp_path, "svhn", {"wrong": 1, "examples": 0, "seed": 0})
    with pytest.raises(UserError, match=r"svhn/0\.json is not a result"):
        report.table(tmp_path)
    path = tmp_path / "svhn" / "0.json"
    path.write_text(json.dumps({"wrong": 1, "examples": 9, "seed": 0}))
    with pytest.raises(UserError, match="it lacks batch_size, command"):
        report.table(tmp_path)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_is_one_that_its_command_does(name):
    experiment = EXPERIMENTS[name]
    config = run.training_of(experiment, 3, run.Machine())
    assert config.max_steps == experiment.max_steps
    hparams = model_class(config.model or "capsule").HParams
    hparams(**parse_overrides(hparams, config.hparams_override))
    for evaluation in experiment.others:
        other = run.evaluation_of(experiment, 3, evaluation, run.Machine())
        assert not other.train
        assert other.checkpoint.endswith(f"model.ckpt-{config.max_steps}")
    large = run.training_of(experiment, 3, run.Machine(batch_size=1024))
    images = large.max_steps * large.batch_size
    assert 0 <= images - config.max_steps * config.batch_size < 1024
    assert (
        dataclasses.replace(
            large,
            batch_size=config.batch_size,
            hparams_override=config.hparams_override,
            max_steps=config.max_steps,
            save_step=config.save_step,
            summary_dir=config.summary_dir,
        )
        == config
    )
    values, of_large = (
        hparams(**parse_overrides(hparams, c.hparams_override))
        for c in (config, large)
    )
    for field in dataclasses.fields(hparams):
        value = getattr(values, field.name)
        if field.name.endswith("_steps"):
            value = math.ceil(value * config.batch_size / 1024)
        assert getattr(of_large, field.name) == value


def test_experiments_without_data(tmp_path, monkeypatch, capsys):
    done = []
    monkeypatch.setattr(
        run, "reproduce", lambda experiment, *_: done.append(experiment.name)
    )
    (tmp_path / "mnist").mkdir()
    given = {
        "data_dir": str(tmp_path),
        "work_dir": "work",
        "batch_size": None,
        "dtype_policy": None,
    }
    command.run(["mnist-3", "pooling"], [0], "out", **given)
    assert done == ["mnist-3", "pooling"]
    message = r"affnist needs the folder \S+/affnist"
    with pytest.raises(UserError, match=message):
        command.run(["mnist-3", "affnist"], [0], "out", **given)
    # What is written down needs none.
    results = tmp_path / "results"
    results.mkdir()
    others = {"affNIST": {"wrong": 9, "examples": 99, "confident": 9}}
    write(results, "affnist", {**result(3), "others": others})
    command.run(["affnist"], [0], results, **given)
    done.clear()
    command.run(["all"], [0], "out", **given)
    left_out = [
        line.split()[2] for line in capsys.readouterr().out.splitlines()
    ]
    assert left_out == [
        *("affnist", "cifar10", "smallnorb", "svhn", "matrix-capsule-norb")
    ]
    assert done == [name for name in EXPERIMENTS if name not in left_out]


@pytest.mark.parametrize(
    ("names", "seeds", "message"),
    [
        (["mnist-4"], ["0"], "unknown experiment 'mnist-4' .did you mean mnis"),
        (["all", "mnist-4"], ["0"], "unknown experiment 'mnist-4'"),
        (["mnist-3"], ["x"], "--seeds=x must be numbers"),
        (["mnist-3"], [], "--seeds= must be numbers"),
        (["mnist-3"], ["٣"], "must be numbers such as 0,1,2"),
        (["mnist-3"], [str(2**32)], "each at least 0 and at most 4,294,967,29"),
        (["all"], ["0"], "--data_dir is required"),
    ],
)
def test_wrong_arguments(names, seeds, message):
    with pytest.raises(UserError, match=message):
        command.run(names, command.seeds_of(seeds), "out", data_dir=None)


def test_a_folder_that_is_named_by_nothing_is_none():
    given = {"data_dir": "data", "work_dir": "work", "batch_size": None}
    with pytest.raises(UserError, match="--output_dir is required"):
        command.run(["mnist-3"], [0], "", **given, dtype_policy=None)


def test_a_seed_is_done_once():
    assert command.seeds_of(["1", "0", "1"]) == [1, 0]
