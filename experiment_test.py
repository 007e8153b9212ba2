"""The command line, end to end, on real images and small networks."""

import contextlib
import dataclasses
import glob
import io
import os
import re
import resource
import shlex
import shutil
import signal
import statistics
import sys
import time
import types

import numpy as np
import pytest
import tensorflow as tf

import checkpoints
import experiment
import tensorboard_test
from checkpoints.architecture import Architecture
from checkpoints.checkpoint import JSON_FILE, WEIGHTS_FILE
from checkpoints.checkpoint_test import flip_bit
from evaluation.evaluator import Evaluator
from input_data import features as keys
from input_data import memory, registry
from input_data.datasets import digits
from input_data.features import ImageShape
from input_data.generators import shifted_records
from input_data.generators.job import Job
from input_data.options import Options
from input_data.splits import Split
from models.capsule import CapsuleModel
from old import flags
from old.errors import Interrupted, InterruptedAtOnce, UserError
from testing import untrained
from testing.commands import finish, run, start
from testing.events import events_of, hparams_row, scalars
from testing.mnist_files import write_mnist
from testing.saved_arrays import saved
from testing.small_models import overrides
from testing.tiny_files import write_cifar10
from training import process, train
from training.config import Config
from training.process import is_training, sole_trainer

SMALL = overrides("capsule", routing=1, remake=False)
BASELINE = {"model": "baseline", "hparams_override": overrides("baseline")}


def small(summary_dir, **values):
    """A config of a small and short training on the digits."""
    return Config(
        **{
            "summary_dir": str(summary_dir),
            "hparams_override": SMALL,
            "batch_size": 8,
            "max_steps": 3,
            **values,
        }
    )


def small_command(summary_dir, **values):
    """The same for a process."""
    config = small(summary_dir, **values)
    return ["experiment.py", *shlex.split(flags.command_line(config))]


def evaluating(summary_dir=None, **values):
    """A config of an evaluation that does not wait long."""
    folder = summary_dir and str(summary_dir)
    waiting = {"eval_interval": 0.05, "eval_timeout": 0.2}
    return Config(train=False, summary_dir=folder, **waiting, **values)


@pytest.mark.parametrize(
    ("hparams", "message"),
    [
        (
            {"num_prime_capsules": 500},
            r"training capsule of .* weights takes",
        ),
        (
            {"remake": False},
            "--batch_size=100000 for images of 28x28 and a",
        ),
    ],
)
def test_what_does_not_fit_in_memory_is_refused(
    tmp_path, monkeypatch, hparams, message
):
    config = small(
        tmp_path,
        batch_size=100_000,
        hparams_override=overrides("capsule", **hparams),
    )
    monkeypatch.setattr(memory, "available", lambda: 10**7)
    with pytest.raises(UserError, match=f"{message}.* in memory"):
        experiment.run(config)


def test_a_signal_while_the_first_step_is_compiled_ends_at_once(
    tmp_path, monkeypatch
):
    compute_loss = CapsuleModel.compute_loss

    def compute_after_signal(*args, **kwargs):
        os.kill(os.getpid(), signal.SIGTERM)
        return compute_loss(*args, **kwargs)

    monkeypatch.setattr(CapsuleModel, "compute_loss", compute_after_signal)
    with pytest.raises(InterruptedAtOnce, match="before the first step"):
        experiment.run(small(tmp_path))
    assert not steps_in(tmp_path)


def printed_by(config):
    with contextlib.redirect_stdout(io.StringIO()) as output:
        experiment.run(config)
    return output.getvalue()


def at(folder, step):
    """The checkpoint of a step."""
    return checkpoints.path_of(folder / "train", step)


def keep_only(folder, *steps):
    for other in set(steps_in(folder)) - set(steps):
        shutil.rmtree(at(folder, other))


def steps_in(folder):
    return [step for step, _ in checkpoints.find_all(folder / "train")]


def assert_same_state(path, other):
    first, second = saved(path), saved(other)
    assert first.keys() == second.keys()
    assert len(first) > 8
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Folders of trainings, and what the last of each printed."""
    folders = {
        name: tmp_path_factory.mktemp(name) / name
        for name in ("done", "base", "curves", "two targets")
    }
    experiment.run(small(folders["done"], max_steps=2))
    all_of_it = {"max_steps": 10, "summary_step": 1}
    jobs = {
        # To step 2, and then continued to step 6.
        "done": {"max_steps": 6, "save_step": 2, "summary_step": 1},
        "base": {**BASELINE, "seed": 3},
        "curves": {
            **all_of_it,
            "hparams_override": overrides("capsule", verbose=True),
        },
        "two targets": {
            **all_of_it,
            "hparams_override": overrides(
                "capsule", verbose=True, loss_type="sigmoid"
            ),
            "num_targets": 2,
            "shift": 6,
            "eval_size": 150,
        },
    }
    printed = {
        name: printed_by(small(folders[name], **values))
        for name, values in jobs.items()
    }
    return folders, printed


@pytest.fixture
def done(finished, tmp_path):
    """A copy of a training's folder, with the steps 2, 4 and 6."""
    return shutil.copytree(finished[0]["done"], tmp_path / "done")


@pytest.fixture
def base(finished, tmp_path):
    """A copy of that of a baseline."""
    return shutil.copytree(finished[0]["base"], tmp_path / "base")


@pytest.mark.slow
def test_training_killed_again_and_again_ends_as_if_never_killed(
    tmp_path, pytestconfig
):
    kills = pytestconfig.getoption("kills")
    whole, killed = tmp_path / "whole", tmp_path / "killed"

    def command(folder):
        # Not so small that saving takes no time.
        return small_command(
            folder,
            hparams_override="num_prime_capsules=1",
            max_steps=40 * kills + 25,
            save_step=10,
        )

    code, _, errors = run(*command(whole))
    assert code == 0, errors
    rng = np.random.default_rng(0)
    for _ in range(kills):
        process = start(*command(killed))
        before = len(steps_in(killed))
        while_saving = rng.random() < 0.5
        while process.poll() is None:
            # Unlike pathlib's, this glob takes it that files go meanwhile.
            if while_saving and glob.glob(f"{killed}/train/.*.partial/*"):
                time.sleep(rng.uniform(0, 0.03))
                break
            if not while_saving and len(steps_in(killed)) > before:
                time.sleep(rng.uniform(0, 0.4))
                break
        process.kill()
        finish(process)
        assert process.returncode == -signal.SIGKILL
    code, output, errors = run(*command(killed))
    assert code == 0, errors
    assert "Resuming from" in output
    steps = steps_in(whole)
    assert steps == [*range(10, 40 * kills + 25, 10), 40 * kills + 25]
    for step in steps:
        assert_same_state(at(whole, step), at(killed, step))
    left = {path.name.split(".")[0] for path in killed.glob("train/*")}
    assert left == {"model", "events", "curve"}


@pytest.mark.slow
def test_the_same_command_gives_the_same_bits(tmp_path):
    outputs = []
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        for arguments in (
            small_command(folder, max_steps=12),
            ["experiment.py", "--train=false", f"--summary_dir={folder}"],
        ):
            code, output, errors = run(*arguments)
            assert code == 0, errors
        outputs.append(output.split("model.ckpt-12:")[1])
    assert outputs[0] == outputs[1]
    curves = [scalars(folder / "train") for folder in (one, two)]
    for tags in curves:
        assert tags.pop("images_per_second").keys() == {10}
    assert curves[0] == curves[1] != {}
    for name in (WEIGHTS_FILE, JSON_FILE):
        contents = [
            (at(folder, 12) / name).read_bytes() for folder in (one, two)
        ]
        assert contents[0] == contents[1]


@pytest.mark.parametrize(
    ("number", "times", "said", "last"),
    [
        (signal.SIGINT, 1, "Stopped at step 8, saved {}/train/model.c", 8),
        (signal.SIGTERM, 2, "Stopped at once: the steps since", 6),
    ],
)
def test_a_signal_saves_the_step_and_a_second_one_stops_at_once(
    done, capsys, monkeypatch, number, times, said, last
):
    on_step = train.StopAfterSignal.on_step

    def signalled(self, step, logs):
        for _ in range(times if step == 8 else 0):
            signal.raise_signal(number)
        on_step(self, step, logs)

    config = small(done, max_steps=9)
    monkeypatch.setattr(train.StopAfterSignal, "on_step", signalled)
    monkeypatch.setattr(process, "_SAME", -1)
    monkeypatch.setattr(flags, "settings_of", lambda _: config)
    monkeypatch.setattr(sys, "argv", ["experiment.py", "--flag=a b"])
    with pytest.raises(SystemExit) as stop:
        experiment.main([""])
    assert stop.value.code == 128 + number
    said_last = capsys.readouterr().err
    assert said.format(done) in said_last
    assert said_last.endswith("Go on by: python experiment.py '--flag=a b'\n")
    assert steps_in(done) == [2, 4, 6, *range(8, last + 1)]
    assert checkpoints.open(at(done, last)).step == last


@pytest.mark.parametrize(("max_steps", "evaluated"), [(8, [8]), (9, [8, 9])])
def test_an_evaluation_that_a_signal_prevented_is_made_up_for(
    done, capsys, monkeypatch, max_steps, evaluated
):
    on_step = train.StopAfterSignal.on_step

    def signalled(self, step, logs):
        if step == 8:
            signal.raise_signal(signal.SIGTERM)
        on_step(self, step, logs)

    config = small(done, max_steps=max_steps, eval_every=4)
    with monkeypatch.context() as patch:
        patch.setattr(train.StopAfterSignal, "on_step", signalled)
        with pytest.raises(Interrupted, match="Stopped at step 8, saved"):
            experiment.run(config)
    assert "Total wrong" not in capsys.readouterr().out
    experiment.run(config)
    output = capsys.readouterr().out
    assert "model.ckpt-8:\nTotal wrong predictions: " in output
    assert list(scalars(done / "test")["wrong_prediction"]) == evaluated


def test_a_signal_during_a_save_waits_for_its_evaluation(done, monkeypatch):
    save = train.checkpoints.save

    def signalled(directory, model, metadata, keep):
        if metadata.step == 8:
            signal.raise_signal(signal.SIGTERM)
        return save(directory, model, metadata, keep)

    monkeypatch.setattr(train.checkpoints, "save", signalled)
    with pytest.raises(Interrupted, match="Stopped at step 9, saved"):
        experiment.run(small(done, max_steps=12, eval_every=4))
    assert list(scalars(done / "test")["wrong_prediction"]) == [8]


def test_a_training_of_the_reference_is_not_begun_anew(tmp_path):
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "model.ckpt-600.index").touch()
    with pytest.raises(UserError, match="TF1, .*model.ckpt-600: to go on"):
        experiment.run(small(tmp_path))


def test_test_images_that_are_missing_are_told_before_the_training(tmp_path):
    write_mnist(tmp_path, num_train=8, num_test=2)
    for path in tmp_path.glob("t10k*"):
        path.unlink()
    config = small(
        tmp_path / "run",
        dataset="mnist",
        data_dir=str(tmp_path),
        eval_every=2,
    )
    with pytest.raises(UserError, match="has no t10k-images"):
        experiment.run(config)
    assert not (tmp_path / "run").exists()


def test_crops_of_another_model_are_told_before_the_training(tmp_path):
    write_cifar10(tmp_path)
    config = Config(
        model="baseline",
        dataset="cifar10",
        data_dir=str(tmp_path),
        summary_dir=str(tmp_path / "run"),
        crops=13,
        eval_every=2,
    )
    with pytest.raises(UserError, match="--crops is for models of capsules"):
        experiment.run(config)
    assert not (tmp_path / "run").exists()


def test_a_second_trainer_is_refused_while_the_first_lives(done):
    config = small(done, max_steps=6)
    with (
        sole_trainer(done / "train"),
        pytest.raises(UserError, match="another process is training in"),
    ):
        experiment.run(config)
    experiment.run(config)


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path):
    override = overrides("baseline", loss_type="softmax", learning_rate=1e38)
    config = small(
        tmp_path, model="baseline", hparams_override=override, max_steps=6
    )
    with pytest.raises(UserError, match="none yet") as caught:
        experiment.run(config)
    found = re.search(
        r"at step (\d+), which is not saved.*its batch: ([\d, ]+)\.",
        str(caught.value),
    )
    step, indices = int(found[1]), [int(n) for n in found[2].split(",")]
    pipeline = registry.load("digits", Split.TRAIN, Options())
    ((x, _),) = pipeline.training_batches(8, 0, step - 1, step)
    labels = digits.read_split(Split.TRAIN).labels
    np.testing.assert_array_equal(labels[indices], x[keys.RECONS_LABEL])
    assert not steps_in(tmp_path)
    experiment.run(dataclasses.replace(config, allow_nonfinite=True))
    assert steps_in(tmp_path) == [6]
    arrays = saved(at(tmp_path, 6)).values()
    assert not all(np.isfinite(array).all() for array in arrays)


def test_weights_that_are_not_finite_are_not_saved(tmp_path):
    # Infinite in float32: the loss of the first step is finite, what it makes
    # of the weights is not.
    config = small(
        tmp_path, hparams_override=f"{SMALL},learning_rate=1e39", max_steps=1
    )
    with pytest.raises(UserError, match="no longer finite after step 1, which"):
        experiment.run(config)
    assert not steps_in(tmp_path)


@pytest.mark.usefixtures("no_pictures")
def test_a_damaged_newest_checkpoint_is_passed_over(done, finished):
    config = small(done, max_steps=6, save_step=2, keep=2)
    flip_bit(at(done, 6) / WEIGHTS_FILE, 9999)
    os.truncate(at(done, 4) / JSON_FILE, 30)
    output = printed_by(evaluating(done))
    assert "ckpt-2:\nTotal wrong" in output
    assert output.count("Total wrong") == 1
    assert "ckpt-4/checkpoint.json cannot be read" in output
    assert "ckpt-6/model.weights.h5 is damaged" in output
    # What a killed save left goes, what is damaged has another name.
    (done / "train" / ".model.ckpt-7.partial").mkdir()
    output = printed_by(config)
    assert "Warning: " in output
    assert "Resuming from" in output
    assert_same_state(at(done, 6), at(finished[0]["done"], 6))
    assert steps_in(done) == [4, 6]
    assert sorted(path.name for path in done.glob("train/*model*")) == [
        "model.ckpt-4",
        "model.ckpt-4.damaged-0",
        "model.ckpt-6",
        "model.ckpt-6.damaged-0",
    ]
    for step in steps_in(done):
        (at(done, step) / JSON_FILE).write_text("")
    with pytest.raises(UserError, match="all checkpoints in .* are damaged"):
        experiment.run(config)


@pytest.mark.usefixtures("no_pictures")
def test_a_checkpoint_that_is_removed_while_it_is_evaluated_counts(
    done, monkeypatch
):
    load = Evaluator.load

    def load_and_lose(self, source):
        result = load(self, source)
        shutil.rmtree(source.path)
        return result

    monkeypatch.setattr(Evaluator, "load", load_and_lose)
    keep_only(done, 6)
    assert "ckpt-6:\nTotal wrong" in printed_by(evaluating(done))
    assert not steps_in(done)


def test_event_files_that_cannot_be_written(done):
    (done / "test").write_text("a file")
    for path in (None, str(at(done, 6))):
        with pytest.raises(UserError, match="event files in .*test cannot be"):
            experiment.run(evaluating(done, checkpoint=path))


@pytest.mark.parametrize("part", ["train", "test"])
def test_another_curve_csv_is_refused_before_the_work(done, part):
    (done / part).mkdir(exist_ok=True)
    (done / part / "curve.csv").write_text("x,y\n1,2\n")
    jobs = [small(done, max_steps=8, eval_every=1), evaluating(done)]
    for job in jobs:
        with pytest.raises(UserError, match="csv is not a learning curve"):
            experiment.run(job)
    assert steps_in(done)[-1] == 6


@pytest.mark.slow
def test_validation_beside_training_reports_each_checkpoint_once(tmp_path):
    shared = [f"--summary_dir={tmp_path}", "--validate", "--train=false"]
    waiting = ["--eval_interval=0.2", "--eval_timeout=200"]
    evaluation = start("experiment.py", *shared, *waiting)
    code, _, errors = run(
        *small_command(tmp_path, validate=True, max_steps=50, save_step=20)
    )
    assert code == 0, errors
    code, output, errors = finish(evaluation)
    assert code == 0, errors
    reported = re.findall(r"model\.ckpt-(\d+):\nTotal wrong", output)
    assert reported == ["20", "40", "50"]
    assert "image 360/360" in output


def test_continuous_evaluation_of_a_training_that_was_continued(done):
    keep_only(done, 2, 6)
    output = printed_by(evaluating(done, eval_all=True))
    reported = re.findall(r"model\.ckpt-(\d+):\nTotal wrong", output)
    assert reported == ["2", "6"]
    assert "No training runs" not in output
    assert "image 360/360" in output
    tags = scalars(done / "test")
    assert set(tags) == tensorboard_test.SCALARS["test"]
    for tag in tags.values():
        assert list(tag) == [2, 6]
    for step in (2, 6):
        wrong = tags["wrong_prediction"][step]
        assert tags["correct_prediction"][step] + wrong == 360
        assert f"Total wrong predictions: {wrong:.0f}, " in output
    newest = printed_by(evaluating(done, eval_size=30))
    assert re.findall(r"model\.ckpt-(\d+):\nTotal wrong", newest) == ["6"]


def test_validation_evaluates_exactly_what_training_left_out(tmp_path):
    assert "1077 images" in printed_by(small(tmp_path, validate=True))
    source = checkpoints.open(at(tmp_path, 3))

    def labels_of(pipeline):
        return np.concatenate(
            [y[keys.LOGITS] for _, y in pipeline.evaluation_batches(100)]
        )

    _, pipeline = Evaluator(evaluating(validate=True)).load(source)
    labels = labels_of(pipeline)
    held_out = registry.load("digits", Split.VALID_TEST, Options())
    np.testing.assert_array_equal(labels, labels_of(held_out))
    _, pipeline = Evaluator(evaluating()).load(source)
    assert (labels_of(pipeline) != labels).any()


def test_validation_on_training_images_is_refused(done, tmp_path):
    more = {"validate": True, "max_steps": 9}
    for config in (
        evaluating(done, validate=True),
        small(done, **more),
        small(tmp_path / "new", **more, init_checkpoint=str(at(done, 6))),
    ):
        with pytest.raises(UserError, match="trained without --validate"):
            experiment.run(config)


def save_untrained(folder, seed, num_targets):
    """Saves a network as a training would at step 0, and returns it."""
    size = {1: 28, 2: 36}[num_targets]
    architecture = Architecture.from_strings(
        "capsule", ImageShape(size, size, 1, 10), num_targets, SMALL
    )
    model = untrained.compiled(architecture, seed)
    untrained.save(folder / "train", model, architecture, seed=seed)
    return model


@pytest.mark.parametrize("num_targets", [1, 2])
def test_ensemble_prints_its_own_and_each_members_error(tmp_path, num_targets):
    models = [
        save_untrained(tmp_path / f"run{seed}", seed, num_targets)
        for seed in range(3)
    ]
    members = str(at(tmp_path / "run{}", 0))
    output = printed_by(
        evaluating(checkpoint=members, num_trials=3, eval_size=250)
    )
    options = Options(num_targets=num_targets, eval_size=250)
    pipeline = registry.load("digits", Split.TEST, options)
    ((x, y),) = pipeline.evaluation_batches(250)

    def largest(values):
        return np.sort(np.argsort(-values, axis=1)[:, :num_targets])

    def count_wrong(logits):
        different = largest(logits) != largest(y[keys.LOGITS])
        return int(different.any(axis=1).sum())

    logits = [model(x)[keys.LOGITS].numpy() for model in models]
    printed = re.findall(
        r"run(\d)/.*/model.ckpt-0: Total wrong predictions: (\d+)", output
    )
    wrong = [count_wrong(each) for each in logits]
    assert printed == [(str(n), str(count)) for n, count in enumerate(wrong)]
    percents = [100 * count / 250 for count in wrong]
    mean = f"{statistics.mean(percents):.2f} ± {statistics.stdev(percents):.2f}"
    assert f"Mean of 3: wrong percent: {mean}%\n" in output
    # The sum of the members' logits.
    total = count_wrong(sum(logits))
    assert len(set(wrong)) > 1
    assert num_targets == 2 or total not in wrong
    assert (
        f"Ensemble of 3:\nTotal wrong predictions: {total}, "
        f"wrong percent: {100 * total / 250:.2f}%"
    ) in output


def test_members_of_an_ensemble_must_have_as_many_targets(tmp_path):
    for trial in range(2):
        save_untrained(tmp_path / f"run{trial}", 0, num_targets=trial + 1)
    config = evaluating(
        checkpoint=str(at(tmp_path / "run{}", 0)), num_trials=2, eval_size=100
    )
    with pytest.raises(
        UserError, match="run1.* on images of another kind than the first"
    ):
        experiment.run(config)


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize("named", [False, True])
def test_settings_are_in_the_hparams_table_of_both_jobs(base, named):
    path = str(at(base, 3)) if named else None
    experiment.run(evaluating(base, seed=3, checkpoint=path))
    assert list(scalars(base / "test")["wrong_prediction"]) == [3]
    name, values = hparams_row(base / "train")
    other_name, other_values = hparams_row(base / "test")
    assert values == other_values
    # In one row the page would mix the accuracies of both.
    assert re.fullmatch("base/train [0-9a-f]{6}", name)
    assert other_name == name.replace("train", "test")
    assert values["model"].string_value == "baseline"
    assert values["seed"].number_value == 3
    assert values["learning_rate"].number_value == 0.001
    assert values["verbose"].bool_value is False


def test_training_writes_the_references_scalars(tmp_path, finished):
    experiment.run(
        small(
            tmp_path,
            max_steps=7,
            summary_step=3,
            hparams_override=overrides("capsule"),
        )
    )
    tags = scalars(tmp_path / "train")
    # Those with a / are of verbose=true.
    assert set(tags) == {
        tag for tag in tensorboard_test.SCALARS["train"] if "/" not in tag
    }
    for step in (3, 6):
        assert tags["learning_rate"][step] == pytest.approx(
            0.001 * 0.96 ** (step / 2000), rel=1e-6
        )
        assert tags["images_per_second"][step] > 0
        assert tags["total_loss"][step] == pytest.approx(
            tags["batch_classification_cost"][step]
            + tags["reconstruction_error"][step],
            rel=1e-5,
        )
        assert tags["correct_prediction_batch"][step] == pytest.approx(
            8 * tags["accuracy"][step]
        )
    assert all(list(tag) == [3, 6] for tag in tags.values())
    # The mean of steps 4 to 6, not of all so far.
    each = scalars(finished[0]["curves"] / "train")["total_loss"]
    assert tags["total_loss"][6] == pytest.approx(
        (each[4] + each[5] + each[6]) / 3, rel=1e-4
    )


@pytest.mark.usefixtures("no_pictures")
def test_the_printed_command_evaluates_what_the_training_meant(finished):
    folder, printed = (of_all["two targets"] for of_all in finished)
    assert re.search(r"10 steps in \d+ s, \d+ images/s\n", printed)
    command = printed.strip().splitlines()[-1].removeprefix("Evaluate by: ")
    assert command == (
        "python experiment.py --train=false --eval_size=150 --num_targets=2 "
        f"--shift=6 '--summary_dir={folder}'"
    )
    config = flags.parse(Config, shlex.split(command)[2:])
    assert "image 150/150" in printed_by(config)
    _, evaluated = Evaluator(config).load(checkpoints.open(at(folder, 10)))
    meant, other = (
        registry.load(
            "digits",
            Split.TEST,
            Options(num_targets=2, shift=shift, eval_size=150),
        )
        for shift in (6, 4)
    )
    ((x, y),), ((same_x, same_y),), ((other_x, _),) = (
        pipeline.evaluation_batches(150)
        for pipeline in (evaluated, meant, other)
    )
    np.testing.assert_array_equal(x[keys.IMAGES], same_x[keys.IMAGES])
    np.testing.assert_array_equal(y[keys.LOGITS], same_y[keys.LOGITS])
    assert (x[keys.IMAGES] != other_x[keys.IMAGES]).any()


def test_training_learns(tmp_path):
    override = "conv_channels=32,num_prime_capsules=4,remake=false"
    experiment.run(
        small(
            tmp_path,
            max_steps=60,
            batch_size=32,
            hparams_override=f"{override},learning_rate=0.005",
        )
    )
    output = printed_by(Config(train=False, checkpoint=str(at(tmp_path, 60))))
    assert not (tmp_path / "test").exists()
    wrong = re.search(r"wrong percent: ([\d.]+)%", output)[1]
    assert float(wrong) < 15


@pytest.mark.usefixtures("no_pictures")
def test_mnist_by_the_references_flags(tmp_path):
    """No --dataset: with --data_dir it is MNIST, as in the reference."""
    write_mnist(tmp_path, 40, 130)
    data, run = str(tmp_path), tmp_path / "run"
    output = printed_by(small(run, data_dir=data, **BASELINE, max_steps=1))
    assert "Training baseline on mnist: 40 images" in output
    assert "image 130/130" in printed_by(evaluating(run, data_dir=data))


def test_records_that_were_padded_are_known_to_be(tmp_path):
    write_mnist(tmp_path, 4, 13)
    data, run = str(tmp_path), tmp_path / "run"
    shifted_records.generate(Job(data, split="train", shift=1, pad=4))
    records = small(run, data_dir=data, **BASELINE, shift=1, max_steps=1)
    assert "36 images" in printed_by(records)
    assert checkpoints.open(run).training["pad"] == 4
    # The test images, of the idx files, are padded like them.
    assert "image 13/13" in printed_by(evaluating(run, data_dir=data))


def test_resuming_on_other_images_says_so(tmp_path):
    write_mnist(tmp_path, 4, 1)
    data, run = str(tmp_path), tmp_path / "run"
    images = small(run, data_dir=data, **BASELINE, shift=1, max_steps=1)
    experiment.run(images)
    more = dataclasses.replace(images, max_steps=2)
    shifted_records.generate(Job(data, split="train", shift=1))
    assert "num_images was 4 and is 36 from here on" in printed_by(more)


def test_a_checkpoint_of_another_architecture_is_refused(done):
    other = overrides("capsule", conv_channels=2, routing=1, remake=False)
    for values, message in (
        (
            {"hparams_override": other},
            "conv_channels is 3 in the checkpoint, 2 was asked for",
        ),
        (BASELINE, "model is capsule in the checkpoint"),
        ({"num_targets": 2}, "num_targets is 1 in the checkpoint"),
    ):
        with pytest.raises(UserError, match=message):
            experiment.run(small(done, max_steps=9, **values))
    assert steps_in(done) == [2, 4, 6]


def test_resuming_with_other_training_settings_says_so(done, tmp_path):
    new = tmp_path / "new"
    shutil.copytree(at(done, 2), at(new, 2))
    override = f"{SMALL},learning_rate=0.01,schedule=cosine"
    settings = {"hparams_override": override, "seed": 4, "summary_step": 1}
    output = printed_by(small(new, max_steps=6, **settings))
    assert "Resuming from" in output
    assert "learning_rate was 0.001 and is 0.01 from here on" in output
    assert "seed was 0 and is 4 from here on" in output
    # By which the rate of each step changes.
    assert "max_steps was 2 and is 6 from here on" in output
    # The first step of a run, which is traced, tells nothing of the speed.
    rates = scalars(new / "train")["images_per_second"]
    assert sorted(rates) == [4, 5, 6]
    # Of the same weights: another seed gives another batch.
    losses = [scalars(run / "train")["total_loss"][3] for run in (done, new)]
    assert losses[0] != losses[1]
    with pytest.raises(UserError, match=r"ckpt-6 is beyond --max_steps=2"):
        experiment.run(small(new, max_steps=2))


def test_resuming_on_another_data_set_is_refused(done, tmp_path):
    write_mnist(tmp_path, 40, 130)
    other = small(done, max_steps=7, data_dir=str(tmp_path))
    with pytest.raises(UserError, match="trained on digits, not on mnist.*--i"):
        experiment.run(other)
    assert steps_in(done) == [2, 4, 6]
    new = {
        "summary_dir": f"{tmp_path}/new",
        "init_checkpoint": str(at(done, 6)),
    }
    experiment.run(dataclasses.replace(other, **new))
    assert steps_in(tmp_path / "new") == [7]


def test_a_training_is_seen_while_it_reads_its_data(tmp_path, monkeypatch):
    folder = tmp_path / "a" / "run"

    def load(*_):
        assert is_training(folder / "train")
        raise UserError("no data")

    monkeypatch.setattr(train.registry, "load", load)
    with pytest.raises(UserError, match="no data"):
        experiment.run(small(folder))
    assert not list(tmp_path.iterdir())  # nothing came of it
    # What was there stays.
    folder.mkdir(parents=True)
    with pytest.raises(UserError, match="no data"):
        experiment.run(small(folder))
    assert list(tmp_path.rglob("*")) == [folder.parent, folder]


def test_weights_alone_start_at_step_0(done, tmp_path):
    source, new = at(done, 6), tmp_path / "new"
    config = small(
        new,
        hparams_override=f"{SMALL},learning_rate=1e-6",
        init_checkpoint=str(source),
        init_weights_only=True,
        max_steps=1,
    )
    assert f"Starting from {source} at step 0" in printed_by(config)
    before, after = saved(source), saved(at(new, 1))
    moments = [n for n in before if n.startswith("optimizer/vars/")]
    for name in before.keys() - moments:
        np.testing.assert_allclose(after[name], before[name], atol=2e-6)
    # After one step from zeros Adam has 0.1 * g and 0.001 * g^2.
    assert len(moments) > 10
    for number in range(1, len(moments), 2):
        first, second = (
            after[f"optimizer/vars/{n}"] for n in (number, number + 1)
        )
        np.testing.assert_allclose(first**2, 10 * second, rtol=0.01, atol=1e-30)
    # It goes on as any other training does.
    experiment.run(dataclasses.replace(config, max_steps=2))
    assert steps_in(new) == [1, 2]


def test_training_on_pair_records_says_what_evaluation_counts(tmp_path):
    write_mnist(tmp_path, 20, 20)
    job = Job(
        data_dir=str(tmp_path),
        split=Split.TRAIN,
        shift=2,
        pad=0,
        num_pairs=1,
        max_shard=20,
        multi_targets=True,
    )
    shifted_records.generate(job)
    prefix = str(tmp_path / "multitrain_2shifted_mnist.tfrecords@1")
    output = printed_by(
        small(tmp_path / "run", num_targets=2, data_dir=prefix, max_steps=1)
    )
    last = output.splitlines()[-1]
    assert last.startswith("which evaluates on the records of --data_dir")


def test_evaluation_refuses_what_contradicts_the_checkpoint(done, tmp_path):
    write_mnist(tmp_path, 20, 20, size=20)
    mnist = {"dataset": "mnist", "data_dir": str(tmp_path)}
    for values, message in (
        ({"hparams_override": "routing=5"}, "routing is 1 .* 5 was asked for"),
        ({"model": "baseline"}, "model is capsule .* baseline was"),
        (mnist, "28x28x1 in 10 .* but mnist .* 20x20x1"),
    ):
        with pytest.raises(UserError, match=message):
            experiment.run(evaluating(checkpoint=str(at(done, 6)), **values))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"summary_dir": None}, "--summary_dir is required"),
        ({"summary_dir": f"{__file__}/x"}, "_test.py/x/train cannot be made"),
        ({"summary_dir": "/proc/x"}, "/proc/x/train cannot be made"),
        ({"checkpoint": "x"}, "add --train=false"),
        ({"train": False, "num_trials": 3}, "--num_trials needs --checkpoint"),
        (
            {"train": False, "num_trials": 3, "checkpoint": "x/model.ckpt-1"},
            "needs {} in x/model.ckpt-1, where the numbers 0 to 2 go",
        ),
        ({"train": False, "checkpoint": "x{}"}, "names an ensemble by {}"),
        ({"train": False, "checkpoint": "x"}, "there is no checkpoint x"),
        ({"train": False, "init_checkpoint": "x"}, "--init_checkpoint is for"),
        ({"init_weights_only": True}, "name one by --init_checkpoint"),
        ({"num_gpus": 64}, "--num_gpus=64, but tensorflow finds"),
        ({"num_trials": 2}, "--num_trials is for evaluation"),
        (
            {"dataset": "digits", "data_dir": "x"},
            "comes with the project: leave out --data_dir",
        ),
        ({"dataset": "norb", "num_targets": 2}, "shows one object in each"),
        ({"image_size": 9}, "--image_size is for --dataset=images"),
        ({"data_dir": "none"}, "--data_dir=none is not a folder"),
        (
            {"hparams_override": "rooting=1"},
            "unknown hyper-parameter 'rooting'",
        ),
    ],
)
def test_wrong_settings_say_what_would_be_right(tmp_path, values, message):
    with pytest.raises(UserError, match=re.escape(message)):
        experiment.run(dataclasses.replace(small(tmp_path / "run"), **values))
    assert not list(tmp_path.iterdir())


def test_a_users_error_is_one_line(monkeypatch):
    with pytest.raises(SystemExit, match="not a flag: train\nPass --help"):
        experiment.main(["", "train"])
    monkeypatch.setattr(flags, "settings_of", lambda _: Config())
    with pytest.raises(SystemExit, match=r"^experiment.py: --summary_dir is r"):
        experiment.main([""])


@pytest.mark.parametrize(
    ("command", "argument", "message"),
    [
        ("experiment.py", "--max_stepps=3", "flag 'max_stepps'. Did you mean"),
        (
            "experiment.py",
            "--max_steps=0",
            "--max_steps=0: 0 is not an integer",
        ),
        ("experiment.py", "--num_trials=3", "--num_trials is for evaluation"),
        ("experiment.py", "--help", "--max_steps: Training steps in all"),
        ("figures.py", "--help", "--output_dir: Folder for the files"),
        ("predict.py", "--format=xml", "should be one of <table|json>"),
    ],
)
def test_flags_are_parsed_without_tensorflow(
    tmp_path, command, argument, message
):
    """A wrong flag, or --help: no traceback, and nothing is written."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys; sys.modules.update(tensorflow=None, keras=None)"
    )
    code, output, errors = run(
        command,
        f"--summary_dir={tmp_path}/run",
        argument,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert code == 1
    assert message in output + errors
    assert "Traceback" not in output + errors
    assert not (tmp_path / "run").exists()


@contextlib.contextmanager
def files_of_at_most(size):
    """As if a disk were full, for a file of that size."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_ends_with_a_message_and_keeps_checkpoints(done):
    before = {p.name: p.read_bytes() for p in at(done, 6).iterdir()}
    with (
        files_of_at_most(len(before[WEIGHTS_FILE]) // 2),
        pytest.raises(UserError, match="model.ckpt-7 cannot be written"),
    ):
        experiment.run(small(done, max_steps=7))
    assert {p.name: p.read_bytes() for p in at(done, 6).iterdir()} == before
    assert steps_in(done) == [2, 4, 6]
    assert not list(done.glob("train/.model*"))


def test_a_full_disk_stops_the_event_files_too(done):
    with (
        files_of_at_most(5_000),
        pytest.raises(UserError, match=f"event files in {done}/train cannot"),
    ):
        experiment.run(small(done, max_steps=60, summary_step=1))


@pytest.mark.parametrize(
    ("name", "size", "columns"), [("curves", 28, 1), ("two targets", 36, 2)]
)
def test_verbose_adds_weights_activations_and_images(
    finished, name, size, columns
):
    folder = finished[0][name]
    events = events_of(folder / "train")
    written = scalars(folder / "train")
    assert set(written) == tensorboard_test.SCALARS["train"]
    assert set(events.Tags()["tensors"]) - set(written) == {
        *tensorboard_test.HISTOGRAMS["train"],
        "reconstruction",
        *(
            tag
            for tag in events.Tags()["tensors"]
            if tag.startswith("_hparams")
        ),
    }
    for layer in tensorboard_test.LAYERS:
        assert 0 <= written[f"{layer}/sparsity"][10] < 1
    kernel = saved(at(folder, 10))["conv1/vars/0"]
    for what, value in (
        ("mean", kernel.mean()),
        ("stddev", kernel.std()),
        ("max", kernel.max()),
    ):
        tag = f"conv1/weights/{what}"
        assert written[tag][10] == pytest.approx(value, rel=1e-5)
    (image,) = events.Tensors("reconstruction")
    width, height, *pictures = image.tensor_proto.string_val
    assert (int(height), int(width)) == (3 * size, columns * size)
    assert len(pictures) == 8
    picture = tf.io.decode_png(pictures[0]).numpy()
    # Under the input stands its target: with one digit, the same image.
    same = (picture[:size, :size] == picture[size : 2 * size, :size]).all()
    assert same == (columns == 1)


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize(
    ("validate", "folder"), [(False, "test"), (True, "validation")]
)
def test_one_process_trains_and_evaluates(tmp_path, validate, folder):
    settings = small(
        tmp_path, max_steps=5, eval_every=2, eval_size=50, validate=validate
    )
    output = printed_by(settings)
    assert steps_in(tmp_path) == [2, 4, 5]
    reported = re.findall(r"model\.ckpt-(\d+):\n.*Total wrong", output)
    assert reported == ["2", "4", "5"]
    wrong = scalars(tmp_path / folder)["wrong_prediction"]
    assert list(wrong) == [2, 4, 5]
    # It may have been stopped between its last step and the evaluation.
    again = printed_by(settings)
    assert re.findall(r"model\.ckpt-(\d+):\n.*Total wrong", again) == ["5"]
    # As another process evaluates the same checkpoint.
    alone = evaluating(
        checkpoint=str(at(tmp_path, 5)), eval_size=50, validate=validate
    )
    found = re.search(r"wrong predictions: (\d+)", printed_by(alone))
    assert float(found[1]) == wrong[5]
    with pytest.raises(UserError, match="--eval_every is for one device"):
        train.train(settings, types.SimpleNamespace(count=2, is_first=True))
