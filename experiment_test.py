import contextlib
import dataclasses
import json
import os
import re
import shutil
import signal
import sys
import time
import types
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import keras
import numpy as np
import pytest
from keras import ops

import experiment
from common import flags
from common.errors import Interrupted, UserError
from common.files import is_training, sole_trainer
from config import Config
from input_data import keys
from input_data.registry import Split
from models.optimizer import compile_model
from testing import commands, splits, untrained
from testing.commands import full_disk, output_of
from testing.events import scalars
from testing.saved_arrays import assert_same_state, saved
from testing.small_models import overrides
from testing.tiny_files import write_mnist
from training import checkpoint, evaluate, start, train
from training.best import best_of, evaluations
from training.checkpoint import JSON_FILE, WEIGHTS_FILE
from training.evaluate import Evaluator
from training.formats import open_checkpoint
from visualization import evaluation_figures as pictures

SMALL = overrides("capsule", routing=1, remake=False)


def small(summary_dir, **values):
    sizes = {"hparams_override": SMALL, "batch_size": 8, "max_steps": 3}
    return Config(**{"summary_dir": str(summary_dir), **sizes, **values})


def evaluating(summary_dir=None, **values):
    """The settings of an evaluation that does not wait for a training."""
    folder = summary_dir and str(summary_dir)
    waiting = {"eval_interval": 0.05, "eval_timeout": 0.2}
    return Config(train=False, summary_dir=folder, **waiting, **values)


def at(folder, step):
    return checkpoint.checkpoint_path(folder / "train", step)


def steps_in(folder):
    return [step for step, _ in checkpoint.find_all(folder / "train")]


def reported_steps(text):
    return re.findall(r"model\.ckpt-(\d+):\nTotal wrong", text)


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """The folder of a training of two steps, resumed to step 6."""
    folder = tmp_path_factory.mktemp("original") / "run"
    experiment.run(small(folder, max_steps=2))
    experiment.run(small(folder, max_steps=6, save_step=2, summary_step=1))
    return folder


@pytest.fixture
def done(original, tmp_path):
    """A copy of it, with the steps 2, 4 and 6."""
    return shutil.copytree(original, tmp_path / "done")


@pytest.fixture(autouse=True)
def without_pictures(monkeypatch):
    """Drawing takes longer than evaluating."""
    monkeypatch.setattr(pictures, "confusion_matrix_png", lambda *_: None)
    monkeypatch.setattr(pictures, "wrong_predictions_png", lambda *_: None)
    drawn = mock.Mock(return_value=b"")
    monkeypatch.setattr(pictures, "learning_curve_png", drawn)


# The training has no patience left at step 90.
ENDS_EARLY = {"validate": True, "eval_every": 30, "patience": 2}
ENDS_EARLY |= {"hparams_override": "num_prime_capsules=1,learning_rate=1e-12"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "last"), [({}, 185), (ENDS_EARLY, 90)], ids=["", "early"]
)
def test_a_killed_training_equals_an_uninterrupted_one(tmp_path, options, last):
    whole, killed = tmp_path / "whole", tmp_path / "killed"

    def command(folder):
        # Large enough that saving takes time.
        values = {"hparams_override": "num_prime_capsules=1", "save_step": 10}
        config = small(folder, max_steps=185, **values | options)
        return ["experiment.py", *flags.arguments(config)]

    output_of(*command(whole))
    rng = np.random.default_rng(0)
    places = [(".*.partial/*", 0.03), ("model.*", 0.4)]  # in a save, after it
    for pattern, seconds in last // 90 * places:
        before = {*killed.glob(f"train/{pattern}")}
        process = commands.start(*command(killed))
        while {*killed.glob(f"train/{pattern}")} <= before:
            assert process.poll() is None
        time.sleep(rng.uniform(0, seconds))
        process.kill()
        commands.finish(process)
        assert process.returncode == -signal.SIGKILL
    assert "Resuming from" in output_of(*command(killed))
    steps = steps_in(whole)
    assert steps == [*range(10, last, 10), last]
    assert evaluations(whole / "train") == evaluations(killed / "train")
    for step in steps:
        assert_same_state(at(whole, step), at(killed, step))
    assert [p.name for p in killed.glob("train/.*")] == [".lock"]


@contextlib.contextmanager
def signal_at(monkeypatch, step, *numbers):
    """Sends this process signals during a training step."""
    on_train_batch_end = train.Trainer.on_train_batch_end

    def send(self, batch, logs=None):
        if self.step + 1 == step:
            for number in numbers:
                signal.raise_signal(number)
        on_train_batch_end(self, batch, logs)

    with monkeypatch.context() as patch:
        patch.setattr(train.Trainer, "on_train_batch_end", send)
        yield


def test_a_signal_saves_the_step(done, monkeypatch):
    stopped = pytest.raises(Interrupted)
    with signal_at(monkeypatch, 8, signal.SIGTERM), stopped as stop:
        experiment.run(small(done, max_steps=9))
    assert stop.value.signal_number == signal.SIGTERM
    assert steps_in(done) == [2, 4, 6, 8]
    with full_disk():  # it goes on without a reader
        experiment.run(small(done, max_steps=9))
    assert steps_in(done) == [2, 4, 6, 8, 9]


def test_a_second_signal_stops_at_once(done, monkeypatch, capsys):
    monkeypatch.setattr(os, "_exit", sys.exit)
    two, stopped = (signal.SIGTERM, signal.SIGINT), pytest.raises(SystemExit)
    with signal_at(monkeypatch, 8, *two), stopped as stop:
        experiment.run(small(done, max_steps=9))
    assert stop.value.code == 128 + signal.SIGINT
    assert "Stopped without saving" in capsys.readouterr().err
    assert steps_in(done) == [2, 4, 6]


def test_a_training_evaluates_itself(tmp_path, capsys):
    sizes = {"eval_size": 50, "validate": True}
    settings = small(tmp_path, max_steps=5, eval_every=2, **sizes)
    experiment.run(settings)
    assert steps_in(tmp_path) == [2, 4, 5]
    assert reported_steps(capsys.readouterr().out) == ["2", "4", "5"]
    wrong = scalars(tmp_path / "validation")["wrong_prediction"]
    assert list(wrong) == [2, 4, 5]
    best_step = best_of(tmp_path / "train").step
    pictures.learning_curve_png.assert_called_with(tmp_path, best_step)
    with pytest.raises(UserError, match="--eval_every"):
        train.train(settings, types.SimpleNamespace(count=2, is_first=True))


def test_an_interrupted_evaluation_is_repeated(done, capsys, monkeypatch):
    config = small(done, max_steps=9, eval_every=4, eval_size=9)
    with signal_at(monkeypatch, 8, signal.SIGTERM), pytest.raises(Interrupted):
        experiment.run(config)
    assert "Total wrong" not in capsys.readouterr().out
    experiment.run(config)
    assert reported_steps(capsys.readouterr().out) == ["8", "9"]


def test_other_trainings_and_damaged_curves_are_found_before_training(done):
    with sole_trainer(done / "train"):
        assert is_training(done / "train")
        with pytest.raises(UserError, match="another process"):
            experiment.run(small(done, max_steps=6))
    assert not is_training(done / "train")
    (done / "train" / "curve.csv").write_bytes(b"\xff")
    with pytest.raises(UserError, match=r"curve\.csv"):
        experiment.run(small(done, max_steps=7, summary_step=100))


@pytest.mark.parametrize(
    ("override", "max_steps"),
    [
        (f"{SMALL},loss_type=softmax,learning_rate=1e38", 6),
        # The loss of the first step is finite, the weights after it are not.
        (f"{SMALL},learning_rate=3e38,optimizer=muon", 1),
    ],
)
def test_what_is_not_finite_is_not_saved(tmp_path, override, max_steps):
    config = small(tmp_path, hparams_override=override, max_steps=max_steps)
    with pytest.raises(UserError, match="is not finite"):
        experiment.run(config)
    assert not steps_in(tmp_path)
    experiment.run(dataclasses.replace(config, allow_nonfinite=True))
    assert steps_in(tmp_path) == [max_steps]


def test_damaged_checkpoints_are_skipped(done, original, capsys):
    (at(done, 6) / WEIGHTS_FILE).write_bytes(b"damaged")
    os.truncate(at(done, 4) / JSON_FILE, 30)
    experiment.run(evaluating(done, eval_size=9))
    assert reported_steps(capsys.readouterr().out) == ["2"]
    (done / "train" / ".model.ckpt-7.9.partial").mkdir()
    experiment.run(small(done, max_steps=6, save_step=2))
    assert steps_in(done) == [2, 4, 6]
    assert_same_state(at(done, 6), at(original, 6))
    assert len(list(done.glob("train/model*.damaged-*"))) == 2
    assert not list(done.glob("train/.*.partial"))


def test_which_checkpoints_are_evaluated(done, capsys, monkeypatch):
    monkeypatch.undo()  # draws

    def evaluated(**settings):
        experiment.run(evaluating(done, eval_size=9, format="json", **settings))
        lines = capsys.readouterr().out.splitlines()
        documents = [json.loads(line) for line in lines]
        seconds = [document["seconds"] for document in documents]
        assert seconds == sorted({*seconds})  # of all runs of the training
        return [document["step"] for document in documents]

    assert evaluated(eval_all=True) == [2, 4, 6]
    names = [path.name for path in (done / "test").glob("*.png")]
    assert names == ["model.ckpt-6.confusion_matrix.png"]
    assert list(scalars(done / "test")["wrong_prediction"]) == [2, 4, 6]
    assert (done / "learning_curve.png").exists()
    rows = (done / "test" / "curve.csv").read_text().splitlines()
    assert [row.split(",")[0] for row in rows] == ["step", "2", "4", "6"]
    assert evaluated() == [6]
    with sole_trainer(done / "train"):
        assert evaluated() == [2, 4, 6]


def test_evaluation_waits_after_a_training_has_stopped(done, monkeypatch):
    shutil.rmtree(at(done, 6))
    clock = 0

    def sleep(seconds):
        nonlocal clock
        clock += seconds
        if clock >= 1000:
            training.close()

    fake = {"monotonic": lambda: clock, "sleep": sleep}
    fake["perf_counter"] = time.perf_counter
    monkeypatch.setattr(evaluate, "time", types.SimpleNamespace(**fake))
    config = evaluating(done, eval_size=9)
    waiting = {"eval_interval": 100, "eval_timeout": 10_000}
    with contextlib.ExitStack() as training:
        training.enter_context(sole_trainer(done / "train"))
        experiment.run(dataclasses.replace(config, **waiting))
    assert clock == 1060


def test_a_run_in_a_thread_whose_pictures_fail(done, capsys, monkeypatch):
    monkeypatch.setattr(pictures, "wrong_predictions_png", lambda *_: 1 / 0)
    monkeypatch.setattr(start, "cpu_has_bfloat16_products", lambda: False)
    config = small(done, max_steps=7, dtype_policy="mixed_bfloat16")
    config = dataclasses.replace(config, eval_every=1, eval_size=9)
    with ThreadPoolExecutor() as executor:
        executor.submit(experiment.run, config).result()
    output = capsys.readouterr().out
    assert "not drawn: ZeroDivisionError" in output
    assert "--dtype_policy=float32 can be much faster" in output
    assert steps_in(done) == [2, 4, 6, 7]
    assert keras.config.dtype_policy().name == "float32"


def test_evaluation_without_a_checkpoint(tmp_path, capsys):
    with pytest.raises(UserError, match=str(tmp_path)):
        experiment.run(evaluating(tmp_path))
    assert capsys.readouterr().err.count(f"training in {tmp_path}") == 1


def test_validation_uses_exactly_the_held_out_images(tmp_path, capsys):
    experiment.run(small(tmp_path, validate=True))
    assert "1077 images" in capsys.readouterr().out
    opened = open_checkpoint(tmp_path)
    *_, pipeline = Evaluator(evaluating(validate=True)).load(opened)
    held_out = splits.load("digits", Split.VALID_TEST)
    ((_, found),), ((_, expected),) = (
        data.evaluation_batches(400) for data in (pipeline, held_out)
    )
    np.testing.assert_equal(found[keys.LABELS], expected[keys.LABELS])


def test_validation_on_training_images_is_refused(done, tmp_path):
    more = {"validate": True, "max_steps": 9}
    for config in (
        evaluating(done, validate=True),
        small(done, **more),
        small(tmp_path / "new", **more, init_checkpoint=str(at(done, 6))),
    ):
        with pytest.raises(UserError, match="validate was False"):
            experiment.run(config)


def save_untrained(folder, seed, num_targets=1, model="capsule", **hparams):
    size = {1: 28, 2: 36}[num_targets]
    shape = keys.ImageShape(size, size, 1, 10)
    network = untrained.small(model, shape, num_targets, seed, **hparams)
    untrained.save(folder / "train", *network, seed=seed)
    return network[0]


@pytest.mark.parametrize("num_targets", [1, 2])
def test_an_ensemble_sums_the_logits(tmp_path, capsys, num_targets):
    models = [
        save_untrained(tmp_path / f"run{seed}", seed, num_targets, "baseline")
        for seed in range(3)
    ]
    members = {"checkpoint": str(at(tmp_path / "run{}", 0)), "num_trials": 3}
    settings = {"eval_size": 250, "format": "json"}
    score = experiment.run(evaluating(tmp_path / "all", **members, **settings))
    output = capsys.readouterr().out
    pipeline = splits.load("digits", Split.TEST, num_targets=num_targets)
    ((x, y),) = pipeline.evaluation_batches(250, stop=250)

    def count_wrong(logits):
        longest = np.argsort(-logits, axis=1)[:, :num_targets]
        right = np.take_along_axis(y[keys.LABELS], longest, axis=1).all(axis=1)
        return int((~right).sum())

    logits = [model(x)[keys.LOGITS].numpy() for model in models]
    wrong = [count_wrong(each) for each in [*logits, sum(logits)]]
    assert len(set(wrong[:3])) > 1
    assert score.wrong == wrong[3]
    folder = tmp_path / "all" / "test"
    assert scalars(folder)["wrong_prediction"] == {0: score.wrong}
    documents = [json.loads(line) for line in output.splitlines()]
    assert json.loads((folder / "ensemble.json").read_text()) == documents[3]
    assert [one["wrong"] for one in documents] == wrong
    speeds = [one["images_per_second"] for one in documents]
    assert speeds[3] < min(speeds[:3])  # all members predict each image


@pytest.mark.parametrize(
    "other", [{"num_targets": 2}, {"loss_type": "softmax"}]
)
def test_members_of_an_ensemble_fit_each_other(tmp_path, other):
    members = {"checkpoint": str(at(tmp_path / "run{}", 0)), "num_trials": 2}
    config = evaluating(eval_size=20, **members)
    save_untrained(tmp_path / "run0", 0, model="baseline")
    with pytest.raises(UserError, match="run1"):
        experiment.run(config)
    save_untrained(tmp_path / "run1", 0, model="baseline", **other)
    with pytest.raises(UserError, match="kind of outputs"):
        experiment.run(config)


def test_crops_are_averaged_by_hand(monkeypatch):
    def moved(offset):
        return types.SimpleNamespace(offset=offset, moved=moved)

    def predict(self, crop):
        row, column = crop.offset
        logits = np.float32([[5 + row, 5 + column, 2]])
        return np.float32([[1, 0, 0]]), logits, np.float32([0])

    config, crops = Config(crops=13, dataset="norb"), moved((0, 0))
    monkeypatch.setattr(Evaluator, "load", lambda *_: (config, None, crops))
    monkeypatch.setattr(Evaluator, "_predict", predict)
    offsets = [(0, 0)] + [
        (p * a, p * b) for p in (1, 2, 3) for a in (-1, 1) for b in (-1, 1)
    ]
    rows = [np.array([5 + r, 5 + c, 2]) / (12 + r + c) for r, c in offsets]
    logits = Evaluator(config).predict(None).logits
    np.testing.assert_allclose(logits, [np.mean(rows, axis=0)], rtol=1e-6)


def test_a_new_training_in_the_folder_has_results_of_its_own(done):
    for max_steps, name in ((6, "test"), (7, "test"), (2, "test_2")):
        if name == "test_2":
            shutil.rmtree(done / "train")
        experiment.run(small(done, max_steps=max_steps))
        experiment.run(evaluating(done, eval_size=9, format="json"))
        assert (done / name / f"model.ckpt-{max_steps}.json").exists()


def test_other_networks_are_refused_and_other_settings_noted(done, capsys):
    for name, values in {
        "conv_channels": {"hparams_override": SMALL + ",conv_channels=2"},
        "another --model": {"model": "baseline", "hparams_override": ""},
        "num_targets": {"num_targets": 2},
        "max_steps": {"max_steps": 4},
    }.items():
        with pytest.raises(UserError, match=name):
            experiment.run(small(done, **{"max_steps": 9, **values}))
    assert steps_in(done) == [2, 4, 6]
    capsys.readouterr()
    override = f"{SMALL},learning_rate=0.01,schedule=cosine"
    experiment.run(small(done, max_steps=8, hparams_override=override, seed=4))
    notes = re.findall("Note: (.*)\n", capsys.readouterr().out)
    assert {
        "learning_rate was 0.001 and is now 0.01",
        "seed was 0 and is now 4",
        "max_steps was 6 and is now 8",
    } <= {*notes}


def test_another_data_set_needs_init_checkpoint(done, tmp_path):
    write_mnist(tmp_path, 40, 130)
    other = small(done, max_steps=7, data_dir=str(tmp_path))
    with pytest.raises(UserError, match="--init_checkpoint"):
        experiment.run(other)
    given = {"summary_dir": str(tmp_path / "new")}
    given["init_checkpoint"] = str(at(done, 6))
    experiment.run(dataclasses.replace(other, **given))
    assert steps_in(tmp_path / "new") == [7]


def test_init_weights_only_starts_at_step_0(done, tmp_path):
    still = f"{SMALL},learning_rate=1e-6"
    source = {"init_checkpoint": str(at(done, 6)), "init_weights_only": True}
    new = tmp_path / "new"
    experiment.run(small(new, hparams_override=still, max_steps=1, **source))
    before, after = saved(at(done, 6)), saved(at(new, 1))
    moments = [n for n in before if n.startswith("optimizer/vars/")]
    for name in before.keys() - moments:
        np.testing.assert_allclose(after[name], before[name], atol=2e-6)
    # After one step from zeros Adam's moments are 0.1 g and 0.001 g^2.
    assert len(moments) > 10
    for n in range(1, len(moments), 2):
        first, second = (after[f"optimizer/vars/{n + i}"] for i in (0, 1))
        np.testing.assert_allclose(first**2, 10 * second, rtol=0.01, atol=1e-30)


def weights_at(folder, step, compiled=False):
    opened = open_checkpoint(at(folder, step))
    network = opened.architecture.build()
    if compiled:
        compile_model(network, max_steps=9)
    opened.load(network, opened.architecture)
    return [ops.convert_to_numpy(v) for v in network.trainable_variables]


AVERAGED = f"{SMALL},ema=0.75,optimizer=muon"  # Adam for some weights


@pytest.fixture(scope="module")
def averaged(tmp_path_factory):
    """The folder of a training with averages, resumed at step 2."""
    folder = tmp_path_factory.mktemp("averaged") / "run"
    for steps in (2, 4):
        options = {"max_steps": steps, "save_step": 1}
        experiment.run(small(folder, hparams_override=AVERAGED, **options))
    return folder


def test_evaluations_use_the_average_of_the_weights(averaged):
    expected = weights_at(averaged, 1, compiled=True)
    for step in range(1, 5):
        weights = weights_at(averaged, step, compiled=True)
        pairs = zip(expected, weights, strict=True)
        expected = [0.75 * before + 0.25 * now for before, now in pairs]
        averages = weights_at(averaged, step)
        for average, wanted in zip(averages, expected, strict=True):
            np.testing.assert_allclose(average, wanted, rtol=1e-5, atol=1e-7)
    assert np.abs(averages[0] - weights[0]).max() > 1e-4


def test_trainings_go_on_with_averages_or_start_from_them(averaged, tmp_path):
    whole, new = tmp_path / "whole", tmp_path / "new"
    experiment.run(small(whole, hparams_override=AVERAGED, max_steps=4))
    assert_same_state(at(averaged, 4), at(whole, 4))
    with pytest.raises(UserError, match="only one has `ema`"):
        experiment.run(small(whole, max_steps=5))
    # Without the state of the optimizer.
    source = {"init_checkpoint": str(at(averaged, 4)), "max_steps": 1}
    still = f"{SMALL},learning_rate=1e-6"
    experiment.run(small(new, hparams_override=still, **source))
    started, averages = weights_at(new, 1), weights_at(averaged, 4)
    for weight, average in zip(started, averages, strict=True):
        np.testing.assert_allclose(weight, average, atol=2e-6)


@contextlib.contextmanager
def files_of_at_most(size):
    """Limits the size of files, like a full disk."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_loses_nothing(done):
    before = {p.name: p.read_bytes() for p in at(done, 6).iterdir()}
    half, refused = len(before[WEIGHTS_FILE]) // 2, pytest.raises(UserError)
    with files_of_at_most(half), refused as error:
        experiment.run(small(done, max_steps=7))
    assert "model.ckpt-7" in str(error.value)
    assert {p.name: p.read_bytes() for p in at(done, 6).iterdir()} == before
    assert steps_in(done) == [2, 4, 6]
    cannot = pytest.raises(UserError, match=f"{done}/train: cannot write")
    with files_of_at_most(5_000), cannot:
        experiment.run(small(done, max_steps=60, summary_step=1))
