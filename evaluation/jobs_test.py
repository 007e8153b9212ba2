"""Following trainings; the jobs themselves are in experiment_test.py."""

import dataclasses
import functools
import itertools
import json
import re
import shutil
import socket
import threading
from contextlib import nullcontext

import pytest

import checkpoints
from checkpoints.checkpoint_test import rewrite
from evaluation import jobs
from evaluation.counts import Score
from evaluation.evaluator import Evaluator, Predictions
from old.errors import UserError
from testing.small_models import overrides
from training.config import Config
from training.process import is_training, sole_trainer
from training.train import train

pytestmark = pytest.mark.usefixtures("no_pictures")
SHORT = {"eval_interval": 0.05, "eval_timeout": 0.2, "eval_size": 30}


def evaluating(folder, **settings):
    return Config(
        train=False, **{**SHORT, "summary_dir": str(folder), **settings}
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    config = Config(
        summary_dir=str(folder),
        hparams_override=overrides("capsule", routing=1, remake=False),
        batch_size=4,
        max_steps=3,
        save_step=1,
    )
    train(config)
    return folder


@pytest.fixture
def run(trained, tmp_path):
    """A copy of a training's folder, with the steps 1, 2 and 3."""
    return shutil.copytree(trained, tmp_path / "run")


def reported(output):
    return re.findall(r"model\.ckpt-(\d+):\nTotal wrong", output)


def test_lines_say_which_images_they_count(run, capsys):
    named = {"checkpoint": str(run)}
    jobs.evaluate_once(evaluating(run, **named))
    output = capsys.readouterr().out
    assert re.search(
        r"model.ckpt-3:\nTotal wrong predictions: \d+, wrong percent: "
        r"[\d.]+% \(30 test images of digits\)\n",
        output,
    )
    # What it held out says so, and has a folder of its own.
    path = run / "train" / "model.ckpt-3"
    (run / "train" / "model.ckpt-1").rename(run / "train" / "model.ckpt-0")
    shutil.rmtree(run / "test")
    with pytest.raises(UserError, match="trained without --validate"):
        jobs.evaluate_once(evaluating(run, validate=True, checkpoint=str(path)))
    new = run.parent / "held out"
    copied = shutil.copytree(path, new / "train" / path.name)
    rewrite(copied, lambda values: values["training"].update(validate=True))
    jobs.evaluate_continuously(evaluating(new, validate=True))
    assert "(30 held-out images of digits)" in capsys.readouterr().out
    assert (new / "validation").is_dir()
    assert not (new / "test").exists()


def test_a_training_that_does_not_run_is_waited_for_and_said(
    run, tmp_path, capsys, monkeypatch
):
    nowhere = tmp_path / "mistyped"
    with pytest.raises(UserError, match="no checkpoint to evaluate in .*mist"):
        jobs.evaluate_continuously(evaluating(nowhere))
    assert not nowhere.exists()
    shutil.rmtree(run / "train" / "model.ckpt-3")
    monkeypatch.setattr(jobs, "START_TIMEOUT", 0.1)
    jobs.evaluate_continuously(evaluating(run, eval_timeout=1e308))
    output = capsys.readouterr().out
    line, *_ = output.split("\n")
    assert line == (
        f"No training runs in {nowhere}/train: waiting 0.2 seconds for one "
        "to start"
    )
    assert f"No training runs in {run}/train: waiting 0.1 seconds" in output
    assert reported(output) == ["2"]


def while_training(folder, config, *events, is_here=True):
    """Evaluates while a training "runs", in which some events come.

    Each event is a function that is called when the evaluation has nothing
    more to do. That of another machine is not seen by its lock.
    """
    events = list(events)
    sleep = jobs.time.sleep

    lock = sole_trainer(folder / "train") if is_here else nullcontext()
    with lock:

        def go_on(seconds):
            if events:
                events.pop(0)()
            else:
                sleep(seconds)

        jobs.time.sleep = go_on
        try:
            jobs.evaluate_continuously(config)
        finally:
            jobs.time.sleep = sleep


def test_a_training_that_begins_anew_is_noticed(run, capsys):
    directory = run / "train"
    old = run.parent / "old"
    shutil.rmtree(directory / "model.ckpt-3")

    def begin_anew():
        shutil.move(directory / "model.ckpt-2", old)
        shutil.rmtree(directory / "model.ckpt-1")
        # Of the same name, but another one.
        shutil.copytree(old, directory / "model.ckpt-2")

    while_training(run, evaluating(run), begin_anew)
    output = capsys.readouterr().out
    assert reported(output) == ["1", "2", "2"]
    assert output.count(f"The training in {directory} began anew") == 1
    assert "No new checkpoint in" in output


def test_a_training_that_goes_on_after_its_end_is_followed(run, capsys):
    last = run / "train" / "model.ckpt-3"

    def save_again():
        shutil.move(last, run / "old")
        shutil.copytree(run / "old", last)

    # Its newest is the last of the training before.
    while_training(run, evaluating(run), save_again)
    output = capsys.readouterr().out
    assert reported(output) == ["1", "2", "3", "3"]
    assert "No new checkpoint in" in output


def write_events(folder, machine):
    """As a training on a machine does with each point of its curves."""
    name = f"events.out.tfevents.1795471912.{machine}.7.0.v2"
    with open(folder / "train" / name, "a") as file:
        file.write("more")


def test_a_training_of_another_machine_is_followed(run, capsys, monkeypatch):
    monkeypatch.setattr(jobs, "START_TIMEOUT", 0.1)
    directory, saved = run / "train", run / "saved"
    saved.mkdir()
    names = ["model.ckpt-2", "model.ckpt-3"]
    for name in names:
        shutil.move(directory / name, saved)

    def write():
        write_events(run, "node-1.cluster")

    def save():
        shutil.move(saved / names.pop(0), directory)

    while_training(
        run,
        evaluating(run, eval_timeout=100.0),
        *(write, save, save),
        is_here=False,
    )
    output = capsys.readouterr().out
    assert reported(output) == ["1", "2", "3"]
    assert "has stopped" not in output


def test_one_that_goes_on_after_its_end_is_followed_too(run, capsys):
    last, started = run / "train" / "model.ckpt-3", []
    tell = jobs.Results.tell

    def go_on(*arguments):
        tell(*arguments)
        if not started:
            started.append(write_events(run, "node-1"))

    def save_again():
        shutil.move(last, run / "old")
        shutil.copytree(run / "old", last)

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(jobs.Results, "tell", go_on)
        monkeypatch.setattr(jobs, "_ENDING", 1)
        config = evaluating(run, eval_timeout=100.0)
        while_training(run, config, save_again, is_here=False)
    assert reported(capsys.readouterr().out)[0] == "3"
    assert started


def test_a_training_here_is_known_by_its_lock_alone(run, capsys, monkeypatch):
    monkeypatch.setattr(jobs, "START_TIMEOUT", 0.1)
    shutil.rmtree(run / "train" / "model.ckpt-3")

    def write():
        write_events(run, socket.gethostname())
        (run / "train" / "events.out.tfevents.0.hparams").touch()

    def remove():
        shutil.rmtree(run / "train" / "model.ckpt-1")

    config = evaluating(run, eval_timeout=100.0)
    while_training(run, config, write, remove, is_here=False)
    output = capsys.readouterr().out
    assert reported(output) == ["2"]
    assert "has stopped" not in output


def test_one_that_writes_no_more_has_stopped(run, capsys, monkeypatch):
    monkeypatch.setattr(jobs, "START_TIMEOUT", 0.1)
    monkeypatch.setattr(jobs, "_WRITES_WITHIN", 0.1)
    shutil.rmtree(run / "train" / "model.ckpt-3")
    while_training(
        run,
        evaluating(run, eval_timeout=100.0),
        functools.partial(write_events, run, "node-1"),
        is_here=False,
    )
    output = capsys.readouterr().out
    assert reported(output) == ["1", "2"]
    assert output.endswith(f"The training in {run}/train has stopped\n")


def test_a_folder_of_tf1_alone_is_told_at_once(tmp_path, capsys):
    directory = tmp_path / "train"
    directory.mkdir()
    (directory / "model.ckpt-6.index").touch()
    with pytest.raises(UserError, match=f"of TF1, {directory}/model.ckpt-6: "):
        jobs.evaluate_continuously(evaluating(tmp_path))
    assert capsys.readouterr().out == ""


def test_a_training_that_ends_is_not_waited_for(run, capsys, monkeypatch):
    is_running = iter([True, True, True, False])
    monkeypatch.setattr(jobs, "is_training", lambda _: next(is_running))
    jobs.evaluate_continuously(evaluating(run, eval_timeout=100.0))
    output = capsys.readouterr().out
    assert reported(output) == ["1", "2", "3"]
    assert "has stopped" not in output


def test_a_training_that_went_on_and_stopped_is_said(run, capsys, monkeypatch):
    is_running = itertools.chain([True] * 3, itertools.repeat(False))
    monkeypatch.setattr(jobs, "is_training", lambda _: next(is_running))
    monkeypatch.setattr(jobs, "_ENDING", 0)
    monkeypatch.setattr(jobs, "START_TIMEOUT", 0.1)
    jobs.evaluate_continuously(evaluating(run, eval_timeout=100.0))
    output = capsys.readouterr().out
    assert reported(output) == ["1", "2", "3"]
    assert output.endswith(f"The training in {run}/train has stopped\n")


@pytest.mark.parametrize("interval", [1e308, 0.01])
def test_intervals_of_any_length(run, interval):
    """They were more than a timer takes."""
    shutil.rmtree(run / "train" / "model.ckpt-3")
    while_training(run, evaluating(run, eval_interval=interval))


def test_a_training_that_stops_is_not_waited_for_any_longer(
    run, capsys, monkeypatch
):
    monkeypatch.setattr(jobs, "START_TIMEOUT", 0.3)
    shutil.rmtree(run / "train" / "model.ckpt-3")
    stopped = threading.Event()
    started = threading.Event()

    def hold():
        with sole_trainer(run / "train"):
            started.set()
            stopped.wait(30)

    trainer = threading.Thread(target=hold)
    trainer.start()
    started.wait(30)
    assert is_training(run / "train")
    tell = jobs.Results.tell

    def tell_and_stop(*arguments):
        tell(*arguments)
        stopped.set()

    monkeypatch.setattr(jobs.Results, "tell", tell_and_stop)
    jobs.evaluate_continuously(evaluating(run, eval_timeout=100.0))
    trainer.join()
    assert not is_training(run / "train")
    output = capsys.readouterr().out
    assert reported(output) == ["1", "2"]
    assert output.endswith(f"The training in {run}/train has stopped\n")


def test_json_for_programs(run, capsys):
    config = evaluating(run, checkpoint=str(run), format="json", eval_size=360)
    score = jobs.evaluate_once(config)
    output, errors = capsys.readouterr()
    found = json.loads(output)
    assert "image 360/360" in errors
    assert found["checkpoint"] == str(run / "train" / "model.ckpt-3")
    assert found["images"] == "test images of digits"
    assert (found["step"], found["num_examples"]) == (3, 360)
    assert found["wrong"] == score.wrong
    assert found["wrong_percent"] == pytest.approx(score.wrong / 3.6)
    matrix = found["confusion_matrix"]
    assert sum(map(sum, matrix)) == 360
    assert sum(matrix[n][n] for n in range(10)) == 360 - score.wrong
    for number, row in enumerate(found["classes"]):
        assert row == {
            "class": str(number),
            "labels": sum(matrix[number]),
            "found": matrix[number][number],
            "predictions": sum(line[number] for line in matrix),
        }
    folder = run / "test"
    assert (folder / "model.ckpt-3.json").read_text() == output
    png = folder / "model.ckpt-3.confusion_matrix.png"
    assert png.read_bytes().startswith(b"\x89PNG")


def test_an_ensemble_is_as_confident_as_its_mean(run, monkeypatch):
    predict = Evaluator.predict

    def unsure(self, checkpoint):
        found = predict(self, checkpoint)
        return dataclasses.replace(found, logits=0.4 * found.labels)

    monkeypatch.setattr(Evaluator, "predict", unsure)
    for step in (1, 2):
        path = checkpoints.path_of(run / "train", step)
        path.rename(path.with_name(f"member{step - 1}"))
    pattern = str(run / "train" / "member{}")
    config = evaluating(run, checkpoint=pattern, num_trials=2)
    _, together = jobs.evaluate_ensemble(config)
    assert (together.correct, together.confident) == (30, 0)


def test_json_has_no_nan(run, capsys, monkeypatch):
    score = Score(30, 20, 20, 10, float("nan"))
    monkeypatch.setattr(Predictions, "score", score)
    jobs.evaluate_once(evaluating(run, checkpoint=str(run), format="json"))

    def refuse(name):
        raise ValueError(name)

    found = json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert found["loss"] is None


def test_an_ensemble_is_of_one_kind(run, tmp_path, capsys):
    new = tmp_path / "baseline"
    train(
        Config(
            summary_dir=str(new),
            model="baseline",
            hparams_override=overrides("baseline"),
            batch_size=4,
            max_steps=3,
        )
    )
    pattern = tmp_path / "member{}" / "model.ckpt-3"
    for number, folder in enumerate((run, run, new)):
        source = checkpoints.path_of(folder / "train", 3)
        shutil.copytree(source, str(pattern).replace("{}", str(number)))
    config = evaluating(
        tmp_path, checkpoint=str(pattern), num_trials=2, format="json"
    )
    capsys.readouterr()
    (first, second), together = jobs.evaluate_ensemble(config)
    # Of two equal members each counts what it counts alone.
    assert first == second
    assert dataclasses.replace(first, loss=None) == together
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["checkpoint"] for line in lines] == [
        *(str(pattern).replace("{}", number) for number in "01"),
        str(pattern),
    ]
    with pytest.raises(
        UserError,
        match="member2.* is of the outputs of model "
        "baseline but .*member0.* of lengths of capsules: they cannot form",
    ):
        jobs.evaluate_ensemble(dataclasses.replace(config, num_trials=3))
    with pytest.raises(UserError) as caught:
        jobs.evaluate_ensemble(dataclasses.replace(config, num_trials=10**5))
    assert "and 99,994 more; found: " in str(caught.value)
    assert len(str(caught.value)) < 1000
