import signal

import keras
import numpy as np
import pytest

from common.errors import Interrupted
from config import Config
from models.table import find_model
from testing import untrained
from testing.saved_arrays import assert_same_state
from testing.small_models import build_model, overrides, small_model
from training import evaluate, steps_per_execution, strategies
from training.formats import open_checkpoint
from training.strategies import OneDevice
from training.train import Trainer, train

SLOW = ["capsule", "deepcaps", "matrix_capsule", "self_routing"]
IS_ON_JAX = keras.backend.backend() == "jax"
pytestmark = pytest.mark.skipif(
    keras.backend.backend() == "torch", reason="torch takes one step in a call"
)


@pytest.fixture
def on_gpu(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(steps_per_execution, "is_on_cpu", lambda: False)
        yield patch


def run(folder, model):
    """Trains for 25 steps, in calls of 10 if several are allowed."""
    steps = {"max_steps": 25, "summary_step": 10, "save_step": 10}
    options = {"batch_size": 4, "hparams_override": overrides(model), **steps}
    config = Config(model=model, summary_dir=str(folder), **options)
    train(config, OneDevice())


@pytest.mark.parametrize(
    "model",
    ["baseline", *(pytest.param(m, marks=pytest.mark.slow) for m in SLOW)],
)
def test_calls_of_several_steps_change_no_numbers(tmp_path, on_gpu, model):
    one, several = tmp_path / "1", tmp_path / "10"
    on_train_batch_end, steps = Trainer.on_train_batch_end, []

    def note(trainer, batch, logs=None):
        on_train_batch_end(trainer, batch, logs)
        steps.append(trainer.step)
        if trainer.step == 10:  # answered after the next call
            signal.raise_signal(signal.SIGTERM)

    on_gpu.setattr(Trainer, "on_train_batch_end", note)
    with pytest.raises(Interrupted, match="Stopped at step 20"):
        run(several, model)
    run(several, model)  # resumes
    assert steps == [10, 20, 25]
    on_gpu.undo()
    run(one, model)
    # XLA rounds convolutions in loops differently, on CPUs.
    paths = (path / "train" / "model.ckpt-25" for path in (several, one))
    assert_same_state(*paths, atol=1e-6 if IS_ON_JAX else 0)
    ours, theirs = (
        np.loadtxt(path / "train" / "curve.csv", delimiter=",", skiprows=1)
        for path in (several, one)
    )
    assert list(ours[:, 0]) == [10, 20]
    np.testing.assert_allclose(ours, theirs, 1e-5 if IS_ON_JAX else 0)


def test_calls_end_at_every_event_and_are_short(on_gpu):
    shape = untrained.DIGITS
    small = small_model("capsule", shape)

    def steps(*events, batch_size=4, model=small, devices=1):
        arguments = model, batch_size, devices, events
        return steps_per_execution.choose_steps(*arguments)

    assert steps(0, 100, 1500, 0) == 50
    assert steps(60, 100, 1500, 0) == 20
    assert steps(0, 100, 1500, 35) == 5
    assert steps(0, 53, 106) == 1
    assert steps(0, 100, batch_size=512) == 20  # 64 MB
    default = build_model("capsule", shape, 1, find_model("capsule").hparams())
    assert steps(0, 40, batch_size=256) == 40  # 64 MB
    assert steps(0, 40, batch_size=256, model=default) == 20  # 10 TFLOP
    assert steps(0, 100, devices=2) == (50 if IS_ON_JAX else 1)


def test_large_batches_evaluate_the_same(tmp_path, monkeypatch):
    path = untrained.save(tmp_path, *untrained.small(), dataset="digits")

    def predict():
        config = Config(checkpoint=path, train=False)
        return evaluate.Evaluator(config).predict(open_checkpoint(path))

    expected = predict()
    for module in (evaluate, strategies):
        monkeypatch.setattr(module, "is_on_cpu", lambda: False)
    monkeypatch.setattr(evaluate, "_GPU_BATCH", 110)
    monkeypatch.setattr(evaluate, "_PENDING", 1)
    found = predict()
    assert len(found.logits) == 360
    np.testing.assert_array_equal(found.labels, expected.labels)
    np.testing.assert_allclose(found.logits, expected.logits, atol=1e-5)
    np.testing.assert_allclose(found.losses, expected.losses, atol=1e-5)
    total, cost = found.losses.T
    assert (total > cost).all()
