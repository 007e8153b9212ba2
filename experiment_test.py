"""The command line, end to end, on real images and small networks."""

import dataclasses
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

import h5py
import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import (
    EventAccumulator,
)
from tensorboard.plugins.hparams import metadata

import experiment
from checkpoints import checkpoint
from checkpoints.checkpoint_test import flip_bit, rewrite
from common.errors import UserError
from evaluation.evaluator import Evaluator
from input_data import features as keys
from input_data import registry
from input_data.generators import shifted_records
from input_data.generators.job import Job
from input_data.splits import Split
from testing.mnist_files import write_mnist
from training.config import Config

ROOT = pathlib.Path(experiment.__file__).parent
# A capsule network that trains a step in a few milliseconds.
SMALL = "num_prime_capsules=1,remake=false"
QUICK = {"eval_interval": 0.05, "eval_timeout": 0.2}
FLAGS = [f"--hparams_override={SMALL}", "--batch_size=8"]


def start(*arguments, **keywords):
    return subprocess.Popen(
        [sys.executable, str(ROOT / "experiment.py"), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **keywords,
    )


def finish(process):
    """Exit code, output and errors."""
    output, errors = process.communicate(timeout=300)
    return process.returncode, output, errors


def run(*arguments, **keywords):
    return finish(start(*arguments, **keywords))


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


def saved_state(path):
    """All weights and optimiser variables of a checkpoint, by name."""
    arrays = {}

    def collect(name, item):
        if isinstance(item, h5py.Dataset):
            arrays[name] = item[()]

    with h5py.File(path / checkpoint.WEIGHTS_FILE) as file:
        file.visititems(collect)
    return arrays


def assert_same_state(path, other):
    first, second = saved_state(path), saved_state(other)
    assert first.keys() == second.keys()
    assert len(first) > 10
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])


def scalars(directory):
    """dict from tag to dict from step to value."""
    events = EventAccumulator(str(directory), size_guidance={"tensors": 0})
    events.Reload()
    return {
        tag: {
            event.step: float(tf.make_ndarray(event.tensor_proto))
            for event in events.Tensors(tag)
        }
        for tag in events.Tags()["tensors"]
        if events.SummaryMetadata(tag).plugin_data.plugin_name == "scalars"
    }


def test_training_killed_again_and_again_ends_as_if_never_killed(
    tmp_path, pytestconfig
):
    kills = pytestconfig.getoption("kills")

    def flags(name):
        return [
            f"--summary_dir={tmp_path / name}",
            f"--max_steps={40 * kills + 25}",
            "--save_step=10",
            "--hparams_override=num_prime_capsules=1",
            "--batch_size=8",
        ]

    code, _, errors = run(*flags("whole"))
    assert code == 0, errors
    killed = tmp_path / "killed" / "train"
    rng = np.random.default_rng(0)
    for _ in range(kills):
        process = start(*flags("killed"))
        before = len(checkpoint.find_all(killed))
        while_saving = rng.random() < 0.5
        while process.poll() is None:
            if while_saving and list(killed.glob(".*.partial/*")):
                time.sleep(rng.uniform(0, 0.03))
                break
            if not while_saving and len(checkpoint.find_all(killed)) > before:
                time.sleep(rng.uniform(0, 0.4))
                break
        process.kill()
        finish(process)
        assert process.returncode == -signal.SIGKILL
    code, output, errors = run(*flags("killed"))
    assert code == 0, errors
    assert "Resuming from" in output
    whole = tmp_path / "whole" / "train"
    steps = [step for step, _ in checkpoint.find_all(whole)]
    assert steps == [*range(10, 40 * kills + 25, 10), 40 * kills + 25]
    for step in steps:
        assert_same_state(
            checkpoint.path_of(whole, step), checkpoint.path_of(killed, step)
        )
    left = {path.name.split(".")[0] for path in killed.iterdir()}
    assert left == {"model", "events"}


def test_the_same_command_gives_the_same_bits(tmp_path):
    outputs = []
    for name in ("one", "two"):
        flags = [f"--summary_dir={tmp_path / name}"]
        code, _, errors = run(*flags, *FLAGS, "--max_steps=12")
        assert code == 0, errors
        code, output, errors = run(*flags, "--train=false")
        assert code == 0, errors
        outputs.append(output.split("model.ckpt-12:")[1])
    assert outputs[0] == outputs[1]
    one, two = (tmp_path / name / "train" for name in ("one", "two"))
    curves = [scalars(one), scalars(two)]
    for tags in curves:
        assert tags.pop("images_per_second").keys() == {10}
    assert curves[0] == curves[1] != {}
    for name in (checkpoint.WEIGHTS_FILE, checkpoint.JSON_FILE):
        assert (one / "model.ckpt-12" / name).read_bytes() == (
            two / "model.ckpt-12" / name
        ).read_bytes()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_the_step_and_says_how_to_go_on(tmp_path, number):
    flags = [f"--summary_dir={tmp_path}", *FLAGS, "--save_step=5"]
    process = start(*flags, "--max_steps=100000")
    train = tmp_path / "train"
    while not checkpoint.find_all(train):
        assert process.poll() is None, finish(process)
        time.sleep(0.02)
    process.send_signal(number)
    code, output, errors = finish(process)
    assert code == 128 + number
    assert "Traceback" not in errors
    step, path = checkpoint.find_all(train)[-1]
    assert f"Stopped at step {step}, saved {path}\n" in output
    assert f"Go on by: python {ROOT / 'experiment.py'} --summary" in output
    assert checkpoint.open_checkpoint(path).step == step
    code, output, errors = run(*flags, f"--max_steps={step + 1}")
    assert code == 0, errors
    assert f"Resuming from {path}" in output


def test_a_second_signal_stops_at_once(tmp_path):
    flags = [f"--summary_dir={tmp_path}", "--max_steps=3", "--batch_size=1000"]
    process = start(*flags, "--hparams_override=verbose=false")
    while not list(tmp_path.glob("train/events*")):
        assert process.poll() is None, finish(process)
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    code, output, errors = finish(process)
    assert code == 128 + signal.SIGTERM
    assert "Stopped at once" in output
    assert "Go on by: python" in output
    assert "Traceback" not in errors
    assert not checkpoint.find_all(tmp_path / "train")


def test_a_second_trainer_is_refused_while_the_first_lives(tmp_path):
    flags = [f"--summary_dir={tmp_path}", *FLAGS, "--save_step=5"]
    process = start(*flags, "--max_steps=100000")
    try:
        while not checkpoint.find_all(tmp_path / "train"):
            assert process.poll() is None, finish(process)
            time.sleep(0.02)
        with pytest.raises(UserError, match="another process is training in"):
            experiment.run(small(tmp_path, max_steps=100_000))
    finally:
        process.kill()
        finish(process)
    step, _ = checkpoint.find_all(tmp_path / "train")[-1]
    experiment.run(small(tmp_path, max_steps=step + 1))


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path, capsys):
    override = f"{SMALL},loss_type=softmax,learning_rate=1e38"
    config = small(
        tmp_path, model="baseline", hparams_override=override, max_steps=6
    )
    with pytest.raises(UserError) as caught:
        experiment.run(config)
    message = str(caught.value)
    step = int(re.search(r"at step (\d+), which is not saved", message)[1])
    pipeline = registry.load("digits", Split.TRAIN, registry.Options())
    batches = pipeline.training_batches(8, 0, step - 1, step)
    indices = [
        int(n)
        for n in re.search(r"its batch: ([\d, ]+)\.", message)[1].split(",")
    ]
    ((x, _),) = batches
    labels = np.concatenate(
        [x[keys.RECONS_LABEL] for x, _ in pipeline.evaluation_batches(100)]
    )
    np.testing.assert_array_equal(labels[indices], x[keys.RECONS_LABEL])
    assert "Last sound checkpoint: none yet" in message
    assert not checkpoint.find_all(tmp_path / "train")
    experiment.run(dataclasses.replace(config, allow_nonfinite=True))
    assert checkpoint.find_all(tmp_path / "train")[-1][0] == 6


def test_weights_that_are_not_finite_are_not_saved(tmp_path):
    # Infinite in float32: the loss of the first step is finite, what it makes
    # of the weights is not.
    config = small(
        tmp_path, hparams_override=f"{SMALL},learning_rate=1e39", max_steps=1
    )
    with pytest.raises(UserError, match="no longer finite after step 1, which"):
        experiment.run(config)
    assert not checkpoint.find_all(tmp_path / "train")
    experiment.run(dataclasses.replace(config, allow_nonfinite=True))
    assert checkpoint.find_all(tmp_path / "train")[-1][0] == 1


def test_a_damaged_newest_checkpoint_is_passed_over(tmp_path, capsys):
    config = small(tmp_path, max_steps=6, save_step=2)
    experiment.run(config)
    train = tmp_path / "train"
    whole = saved_state(checkpoint.path_of(train, 6))
    flip_bit(checkpoint.path_of(train, 6) / checkpoint.WEIGHTS_FILE, 9999)
    os.truncate(checkpoint.path_of(train, 4) / checkpoint.JSON_FILE, 30)
    capsys.readouterr()
    experiment.run(Config(train=False, summary_dir=str(tmp_path), **QUICK))
    output = capsys.readouterr().out
    assert "ckpt-2:\nTotal wrong" in output
    assert output.count("Total wrong") == 1
    assert "ckpt-4/checkpoint.json cannot be read" in output
    assert "ckpt-6/model.weights.h5 is damaged" in output
    experiment.run(config)
    output = capsys.readouterr().out
    assert "Warning: " in output
    assert "Resuming from" in output
    again = saved_state(checkpoint.path_of(train, 6))
    for name, values in whole.items():
        np.testing.assert_array_equal(again[name], values)
    for _, path in checkpoint.find_all(train):
        (path / checkpoint.JSON_FILE).write_text("")
    with pytest.raises(UserError, match="all checkpoints in .* are damaged"):
        experiment.run(config)


def test_keep_never_counts_a_damaged_checkpoint(tmp_path):
    train = tmp_path / "train"
    experiment.run(small(tmp_path, max_steps=6, save_step=2))
    newest = checkpoint.path_of(train, 6)
    flip_bit(newest / checkpoint.WEIGHTS_FILE, 9999)
    experiment.run(small(tmp_path, max_steps=5, save_step=1, keep=1))
    assert [step for step, _ in checkpoint.find_all(train)] == [5]
    assert checkpoint.newest(train).step == 5
    assert (train / "model.ckpt-6.damaged-0").is_dir()


def test_a_checkpoint_that_is_removed_while_it_is_evaluated_counts(
    tmp_path, capsys, monkeypatch
):
    experiment.run(small(tmp_path))
    path = checkpoint.path_of(tmp_path / "train", 3)
    open_checkpoint = Evaluator.open

    def open_and_lose(self, given):
        result = open_checkpoint(self, given)
        shutil.rmtree(given)
        return result

    monkeypatch.setattr(Evaluator, "open", open_and_lose)
    capsys.readouterr()
    experiment.run(Config(train=False, summary_dir=str(tmp_path), **QUICK))
    assert "ckpt-3:\nTotal wrong" in capsys.readouterr().out
    assert not path.exists()


def test_event_files_that_cannot_be_written(tmp_path):
    experiment.run(small(tmp_path))
    (tmp_path / "test").write_text("a file")
    for values in (
        {},
        {"checkpoint": str(tmp_path / "train" / "model.ckpt-3")},
    ):
        config = Config(train=False, summary_dir=str(tmp_path), **values)
        with pytest.raises(UserError, match="event files in .*test cannot be"):
            experiment.run(config)


def test_keep_removes_all_but_the_newest(tmp_path):
    experiment.run(small(tmp_path, max_steps=7, save_step=2, keep=2))
    steps = [step for step, _ in checkpoint.find_all(tmp_path / "train")]
    assert steps == [6, 7]


def test_validation_beside_training_reports_each_checkpoint_once(tmp_path):
    shared = [f"--summary_dir={tmp_path}", "--validate"]
    evaluating = start(
        *shared, "--train=false", "--eval_interval=0.2", "--eval_timeout=200"
    )
    training = start(*shared, *FLAGS, "--max_steps=50", "--save_step=20")
    code, output, errors = finish(training)
    assert code == 0, errors
    assert "1077 images" in output
    code, output, errors = finish(evaluating)
    assert code == 0, errors
    reported = re.findall(r"model\.ckpt-(\d+):\nTotal wrong", output)
    assert reported == ["20", "40", "50"]
    assert "image 360/360" in output
    tags = scalars(tmp_path / "test")
    assert set(tags) == {
        "correct_prediction",
        "wrong_prediction",
        "almost_wrong_prediction",
    }
    for tag in tags.values():
        assert list(tag) == [20, 40, 50]
    for step in (20, 40, 50):
        wrong = tags["wrong_prediction"][step]
        assert tags["correct_prediction"][step] + wrong == 360
        assert f"Total wrong predictions: {wrong:.0f}, " in output


def test_continuous_evaluation_of_a_training_that_was_continued(
    tmp_path, capsys
):
    experiment.run(small(tmp_path, max_steps=2))
    experiment.run(small(tmp_path, max_steps=5, save_step=2))
    capsys.readouterr()
    experiment.run(Config(train=False, summary_dir=str(tmp_path), **QUICK))
    output = capsys.readouterr().out
    reported = re.findall(r"model\.ckpt-(\d+):\nTotal wrong", output)
    assert reported == ["2", "4", "5"]
    assert "No new checkpoint" not in output


def test_validation_evaluates_exactly_what_training_left_out(tmp_path):
    experiment.run(small(tmp_path, validate=True))
    path = tmp_path / "train" / "model.ckpt-3"
    config = Config(train=False, validate=True)
    labels, _, _ = Evaluator(config).predict(checkpoint.open_checkpoint(path))
    held_out = registry.load("digits", Split.VALID_TEST, registry.Options())
    expected = np.concatenate(
        [y[keys.LOGITS] for _, y in held_out.evaluation_batches(100)]
    )
    np.testing.assert_array_equal(labels, expected)
    test_labels, _, _ = Evaluator(Config(train=False)).predict(
        checkpoint.open_checkpoint(path)
    )
    assert (test_labels != labels).any()


def test_validation_on_training_images_is_refused(tmp_path):
    experiment.run(small(tmp_path))
    path = tmp_path / "train" / "model.ckpt-3"
    for config in (
        Config(train=False, validate=True, summary_dir=str(tmp_path)),
        small(tmp_path, validate=True, max_steps=5),
        small(
            tmp_path / "new",
            validate=True,
            max_steps=5,
            init_checkpoint=str(path),
        ),
    ):
        with pytest.raises(UserError, match="trained without --validate"):
            experiment.run(config)


def test_the_seed_changes_the_batches(tmp_path):
    for seed in (0, 1):
        experiment.run(
            small(tmp_path / f"{seed}", max_steps=1, summary_step=1, seed=0)
        )
        experiment.run(
            small(tmp_path / f"{seed}", max_steps=2, summary_step=1, seed=seed)
        )
    zero, one = (
        scalars(tmp_path / name / "train")["total_loss"] for name in "01"
    )
    assert zero[1] == one[1]
    assert zero[2] != one[2]


def test_what_a_killed_save_left_is_removed(tmp_path):
    partial = tmp_path / "train" / ".model.ckpt-2.partial"
    partial.mkdir(parents=True)
    (partial / checkpoint.WEIGHTS_FILE).write_bytes(b"half")
    experiment.run(small(tmp_path))
    assert not partial.exists()


def test_continuous_evaluation_gives_up_after_the_timeout(tmp_path, capsys):
    evaluate = Config(train=False, summary_dir=str(tmp_path), **QUICK)
    with pytest.raises(UserError, match=r"no checkpoint came to .* 0.2 sec"):
        experiment.run(evaluate)
    experiment.run(small(tmp_path, max_steps=4))
    # A training that was to go on, but never did.
    path = checkpoint.path_of(tmp_path / "train", 4)
    rewrite(path, lambda values: values["training"].update(max_steps=9))
    capsys.readouterr()
    experiment.run(evaluate)
    output = capsys.readouterr().out
    assert output.count("Total wrong") == 1
    assert "No new checkpoint" in output


@pytest.mark.parametrize("num_targets", [1, 2])
def test_ensemble_prints_its_own_and_each_members_error(
    tmp_path, capsys, num_targets
):
    for trial in range(3):
        experiment.run(
            small(
                tmp_path / f"run{trial}",
                seed=trial,
                max_steps=30,
                num_targets=num_targets,
            )
        )
    capsys.readouterr()
    experiment.run(
        Config(
            train=False,
            checkpoint=str(tmp_path / "run{}" / "train" / "model.ckpt-30"),
            num_trials=3,
            eval_size=250,
        )
    )
    output = capsys.readouterr().out
    members = re.findall(
        r"run(\d)/train/model.ckpt-30: Total wrong predictions: (\d+)", output
    )
    assert [member for member, _ in members] == ["0", "1", "2"]
    assert len({wrong for _, wrong in members}) > 1
    # The sum of the members' logits, and its largest by argsort.
    evaluator = Evaluator(Config(train=False, eval_size=250))
    total = np.zeros((250, 10))
    for trial in range(3):
        path = tmp_path / f"run{trial}" / "train" / "model.ckpt-30"
        found = evaluator.predict(checkpoint.open_checkpoint(path))
        assert found.pipeline.spec.num_targets == num_targets
        total += found.logits
    largest = np.sort(np.argsort(-total, axis=1)[:, :num_targets])
    wanted = np.sort(np.argsort(-found.labels, axis=1)[:, :num_targets])
    wrong = int((largest != wanted).any(axis=1).sum())
    if num_targets == 1:  # enough is learnt for the members to differ
        assert str(wrong) not in {count for _, count in members}
    assert (
        f"Ensemble of 3:\nTotal wrong predictions: {wrong}, "
        f"wrong percent: {100 * wrong / 250:.2f}%"
    ) in output


def test_members_of_an_ensemble_must_have_as_many_targets(tmp_path):
    for trial in range(2):
        experiment.run(
            small(tmp_path / f"run{trial}", max_steps=1, num_targets=trial + 1)
        )
    with pytest.raises(UserError, match="is for 2 targets but .* for 1"):
        experiment.run(
            Config(
                train=False,
                checkpoint=str(tmp_path / "run{}" / "train" / "model.ckpt-1"),
                num_trials=2,
                eval_size=100,
            )
        )


def test_ensemble_with_a_missing_member_lists_what_was_found(tmp_path):
    for trial in (0, 2):
        (tmp_path / f"run{trial}").mkdir()
    config = Config(
        train=False, checkpoint=str(tmp_path / "run{}"), num_trials=4
    )
    with pytest.raises(
        UserError, match=r"missing .*run1, .*run3; found: .*run0, .*run2"
    ):
        experiment.run(config)


def test_evaluation_of_one_checkpoint_needs_no_other_flags(tmp_path, capsys):
    experiment.run(small(tmp_path, max_steps=5, model="baseline"))
    path = tmp_path / "train" / "model.ckpt-5"
    config = Config(train=False, checkpoint=str(path))
    experiment.run(config)
    output = capsys.readouterr().out
    assert "image 360/360" in output
    assert re.search(r"Total wrong predictions: \d+, wrong percent", output)
    assert not (tmp_path / "test").exists()
    experiment.run(
        Config(
            train=False, checkpoint=str(path), summary_dir=str(tmp_path / "e")
        )
    )
    assert list(scalars(tmp_path / "e" / "test")["wrong_prediction"]) == [5]


def test_training_writes_the_references_scalars(tmp_path):
    experiment.run(
        small(
            tmp_path,
            max_steps=7,
            summary_step=3,
            hparams_override="num_prime_capsules=1",
        )
    )
    tags = scalars(tmp_path / "train")
    assert set(tags) == {
        "batch_classification_cost",
        "total_loss",
        "accuracy",
        "correct_prediction_batch",
        "almost_correct_batch",
        "reconstruction_error",
        "learning_rate",
        "images_per_second",
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
    again = tmp_path / "again"
    experiment.run(
        small(
            again,
            max_steps=6,
            summary_step=1,
            hparams_override="num_prime_capsules=1",
        )
    )
    each = scalars(again / "train")["total_loss"]
    assert tags["total_loss"][6] == pytest.approx(
        (each[4] + each[5] + each[6]) / 3, rel=1e-4
    )


@pytest.mark.parametrize("named", [False, True])
def test_settings_are_in_the_hparams_table_of_both_jobs(tmp_path, named):
    run = tmp_path / "base"
    experiment.run(small(run, model="baseline", seed=3))
    path = str(checkpoint.path_of(run / "train", 3)) if named else None
    experiment.run(
        Config(train=False, summary_dir=str(run), seed=3, checkpoint=path)
    )
    rows = []
    for job in ("train", "test"):
        events = EventAccumulator(str(run / job))
        events.Reload()
        content = events.SummaryMetadata(
            metadata.SESSION_START_INFO_TAG
        ).plugin_data.content
        start = metadata.parse_session_start_info_plugin_data(content)
        rows.append((start.group_name, dict(start.hparams)))
    assert rows[0] == rows[1]
    name, values = rows[0]
    assert re.fullmatch("base [0-9a-f]{6}", name)
    assert values["model"].string_value == "baseline"
    assert values["seed"].number_value == 3
    assert values["learning_rate"].number_value == 0.001
    assert values["remake"].bool_value is False


def test_the_last_lines_say_how_to_evaluate(tmp_path, capsys):
    folder = tmp_path / "a folder"
    experiment.run(small(folder, validate=True, seed=2))
    output = capsys.readouterr().out
    assert re.search(r"3 steps in \d+ s, \d+ images/s\n", output)
    command = output.strip().splitlines()[-1]
    assert command == (
        "Evaluate by: python experiment.py --train=false "
        f"'--summary_dir={folder}' --seed=2 --validate=True"
    )


def test_training_learns(tmp_path, capsys):
    experiment.run(
        small(
            tmp_path,
            max_steps=150,
            batch_size=32,
            hparams_override="num_prime_capsules=4",
        )
    )
    experiment.run(Config(train=False, summary_dir=str(tmp_path)))
    wrong = re.search(
        r"wrong percent: ([\d.]+)%", capsys.readouterr().out
    ).group(1)
    assert float(wrong) < 10


def test_two_targets_train_and_evaluate(tmp_path, capsys):
    experiment.run(
        small(
            tmp_path,
            num_targets=2,
            hparams_override="num_prime_capsules=1,loss_type=sigmoid",
        )
    )
    experiment.run(
        Config(train=False, summary_dir=str(tmp_path), eval_size=150)
    )
    assert "image 150/150" in capsys.readouterr().out


def test_mnist_by_the_references_flags(tmp_path, capsys):
    """No --dataset: with --data_dir it is MNIST, as in the reference."""
    write_mnist(tmp_path, 40, 130)
    experiment.run(
        small(tmp_path / "run", data_dir=str(tmp_path), model="baseline")
    )
    assert "Training baseline on mnist: 40 images" in capsys.readouterr().out
    experiment.run(
        Config(
            train=False,
            data_dir=str(tmp_path),
            summary_dir=str(tmp_path / "run"),
        )
    )
    assert "image 130/130" in capsys.readouterr().out
    with pytest.raises(
        UserError, match="dataset is mnist in the .* --dataset and --data_dir"
    ):
        experiment.run(Config(train=False, summary_dir=str(tmp_path / "run")))


def test_a_checkpoint_of_another_architecture_is_refused(tmp_path):
    experiment.run(small(tmp_path))
    before = checkpoint.find_all(tmp_path / "train")
    with pytest.raises(
        UserError,
        match="num_prime_capsules is 1 in the checkpoint, 2 was asked for",
    ):
        experiment.run(
            small(
                tmp_path,
                max_steps=9,
                hparams_override="num_prime_capsules=2,remake=false",
            )
        )
    with pytest.raises(UserError, match="model is capsule in the checkpoint"):
        experiment.run(small(tmp_path, max_steps=9, model="baseline"))
    with pytest.raises(UserError, match="num_targets is 1 in the checkpoint"):
        experiment.run(small(tmp_path, max_steps=9, num_targets=2))
    assert checkpoint.find_all(tmp_path / "train") == before


def test_resuming_with_other_training_settings_says_so(tmp_path, capsys):
    experiment.run(small(tmp_path))
    capsys.readouterr()
    experiment.run(
        small(
            tmp_path,
            max_steps=5,
            seed=4,
            hparams_override=f"{SMALL},learning_rate=0.01",
        )
    )
    output = capsys.readouterr().out
    assert "Resuming from" in output
    assert "learning_rate was 0.001 and is 0.01 from here on" in output
    assert "seed was 0 and is 4 from here on" in output
    with pytest.raises(UserError, match=r"ckpt-5 is beyond --max_steps=4"):
        experiment.run(small(tmp_path, max_steps=4))


def test_resuming_on_another_data_set_is_refused(tmp_path):
    write_mnist(tmp_path, 40, 130)
    experiment.run(small(tmp_path))
    path = tmp_path / "train" / "model.ckpt-3"
    other = small(tmp_path, max_steps=5, data_dir=str(tmp_path))
    with pytest.raises(UserError, match="trained on digits, not on mnist.*--i"):
        experiment.run(other)
    assert [step for step, _ in checkpoint.find_all(path.parent)] == [3]
    experiment.run(
        dataclasses.replace(
            other,
            summary_dir=str(tmp_path / "new"),
            init_checkpoint=str(path),
        )
    )


def test_training_on_pair_records_says_what_evaluation_counts(tmp_path, capsys):
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
    prefix = tmp_path / "multitrain_2shifted_mnist.tfrecords@1"
    experiment.run(small(tmp_path / "run", num_targets=2, data_dir=str(prefix)))
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("which evaluates on the records of --data_dir")


def test_evaluation_refuses_what_contradicts_the_checkpoint(tmp_path):
    experiment.run(small(tmp_path))
    path = str(tmp_path / "train" / "model.ckpt-3")
    config = Config(train=False, checkpoint=path, hparams_override="routing=5")
    with pytest.raises(UserError, match="routing is 3 .* 5 was asked for"):
        experiment.run(config)
    with pytest.raises(UserError, match="model is capsule .* baseline was"):
        experiment.run(Config(train=False, checkpoint=path, model="baseline"))
    write_mnist(tmp_path, 20, 20, size=20)
    with pytest.raises(
        UserError, match="28x28x1 in 10 .* but mnist .* 20x20x1"
    ):
        experiment.run(
            Config(
                train=False,
                checkpoint=path,
                dataset="mnist",
                data_dir=str(tmp_path),
            )
        )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"summary_dir": None}, "--summary_dir is required"),
        ({"checkpoint": "x"}, "add --train=false"),
        ({"train": False, "num_trials": 3}, "--num_trials needs --checkpoint"),
        (
            {"train": False, "num_trials": 3, "checkpoint": "x/model.ckpt-1"},
            "needs {} in --checkpoint, where the numbers 0 to 2 go",
        ),
        ({"train": False, "checkpoint": "x{}"}, "names an ensemble by {}"),
        ({"train": False, "checkpoint": "x"}, "there is no checkpoint x"),
        ({"num_gpus": 64}, "--num_gpus=64, but tensorflow finds"),
        ({"num_trials": 2}, "--num_trials is for evaluation"),
        (
            {"dataset": "digits", "data_dir": "x"},
            "comes with the project: leave out --data_dir",
        ),
        ({"dataset": "norb", "num_targets": 2}, "shows one object in each"),
        ({"image_size": 9}, "--image_size is for --dataset=images"),
        ({"data_dir": "none"}, "--data_dir=none is not a folder"),
    ],
)
def test_wrong_settings_say_what_would_be_right(tmp_path, values, message):
    with pytest.raises(UserError, match=re.escape(message)):
        experiment.run(dataclasses.replace(small(tmp_path / "run"), **values))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--hparams_override=rooting=1"], "unknown hyper-parameter 'rooting'"),
        (["--model=capsul"], "should be one of <baseline|capsule>"),
        (["--max_stepps=3"], "Unknown command line flag 'max_stepps'"),
        (["--max_steps=0"], "--max_steps"),
        (["--batch_size=many"], "--batch_size=many"),
        (["--eval_interval=nan"], "must be a finite number"),
        (["--seed=5000000000"], "--seed=5000000000"),
        (["train"], "not a flag: train"),
    ],
)
def test_wrong_command_lines_end_without_a_traceback(
    tmp_path, arguments, message
):
    code, output, errors = run(f"--summary_dir={tmp_path}", *arguments)
    assert code != 0
    assert message in output + errors
    assert "Traceback" not in output + errors
    assert not list(tmp_path.iterdir())


def test_a_full_disk_ends_with_a_message_and_keeps_checkpoints(tmp_path):
    flags = [f"--summary_dir={tmp_path}", *FLAGS]
    code, _, errors = run(*flags, "--max_steps=2")
    assert code == 0, errors
    (_, path), *_ = checkpoint.find_all(tmp_path / "train")
    before = {p.name: p.read_bytes() for p in path.iterdir()}
    limit = len(before[checkpoint.WEIGHTS_FILE]) // 2
    code, output, errors = run(
        *flags,
        "--max_steps=4",
        preexec_fn=lambda: resource.setrlimit(
            resource.RLIMIT_FSIZE, (limit, limit)
        ),
    )
    assert code == 1
    assert "model.ckpt-4 cannot be written" in errors
    assert "Traceback" not in output + errors
    assert {p.name: p.read_bytes() for p in path.iterdir()} == before
    assert [p for _, p in checkpoint.find_all(tmp_path / "train")] == [path]
    assert not list((tmp_path / "train").glob(".model*"))


def test_a_full_disk_stops_the_event_files_too(tmp_path):
    code, output, errors = run(
        f"--summary_dir={tmp_path}",
        "--hparams_override=num_prime_capsules=1,verbose=true",
        "--batch_size=8",
        "--summary_step=1",
        "--max_steps=60",
        preexec_fn=lambda: resource.setrlimit(
            resource.RLIMIT_FSIZE, (60_000, 60_000)
        ),
    )
    assert code == 1
    assert f"event files in {tmp_path / 'train'} cannot be written" in errors
    assert "Traceback" not in output + errors


def test_a_summary_dir_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(UserError, match=r"file/train cannot be made"):
        experiment.run(small(tmp_path / "file"))
    with pytest.raises(UserError, match=r"/proc/capsules/train cannot be"):
        experiment.run(small("/proc/capsules"))


@pytest.mark.parametrize("num_targets", [1, 2])
def test_verbose_adds_weights_activations_and_images(tmp_path, num_targets):
    experiment.run(
        small(
            tmp_path,
            num_targets=num_targets,
            max_steps=10,
            summary_step=1,
            hparams_override="num_prime_capsules=1,verbose=true",
        )
    )
    events = EventAccumulator(
        str(tmp_path / "train"), size_guidance={"tensors": 0}
    )
    events.Reload()
    tags = events.Tags()["tensors"]
    for weight in (
        "conv1/weights",
        "conv1/biases",
        "conv_capsule1/weights",
        "conv_capsule1/biases",
        "capsule2/weights",
        "capsule2/biases",
        "recons/recons_1/weights",
        "recons/recons_3/biases",
    ):
        for what in ("mean", "stddev", "min", "max", "histogram"):
            assert f"{weight}/{what}" in tags
    for name in ("conv1", "conv_capsule1", "capsule2"):
        assert f"{name}/activation" in tags
        assert 0 <= scalars(tmp_path / "train")[f"{name}/sparsity"][10] < 1
    saved = saved_state(checkpoint.path_of(tmp_path / "train", 10))
    written = scalars(tmp_path / "train")
    kernel = saved["conv1/vars/0"]
    for what, value in (
        ("mean", kernel.mean()),
        ("stddev", kernel.std()),
        ("max", kernel.max()),
    ):
        tag = f"conv1/weights/{what}"
        assert written[tag][10] == pytest.approx(value, rel=1e-5)
    (image,) = events.Tensors("reconstruction")
    width, height, *pictures = image.tensor_proto.string_val
    size = 28 if num_targets == 1 else 36
    assert (int(height), int(width)) == (3 * size, num_targets * size)
    assert len(pictures) == 8
    picture = tf.io.decode_png(pictures[0]).numpy()
    # Under the input stands its target: with one digit, the same image.
    same = (picture[:size, :size] == picture[size : 2 * size, :size]).all()
    assert same == (num_targets == 1)
