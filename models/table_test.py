"""Models outside the project: training, resuming and regularizers."""

import dataclasses
import types

import keras
import psutil
import pytest

import experiment
import layers
from common.errors import UserError
from config import Config
from input_data import keys
from models.optimizer import compile_model
from models.table import Model, find_model
from testing.events import scalars
from testing.saved_arrays import assert_same_state
from testing.small_models import (
    build_model,
    example_batch,
    small_hparams,
    small_model,
)
from testing.untrained import DIGITS
from training.formats import open_checkpoint


def toy(images, num_classes, *, units: int = 4, penalty: str = "none"):
    """A convolution and the mean of its outputs over all positions.

    Args:
      units: int, channels of the convolution.
      penalty: str, weights with a regularizer.
    """
    hidden = keras.layers.Conv2D(units, 5, 3, activation="relu")(images)
    l2 = {f"{penalty}_regularizer": keras.regularizers.L2()}
    l2 = l2 if penalty != "none" else {}
    classes = keras.layers.Dense(num_classes, **l2)
    pooled = keras.layers.GlobalAveragePooling2D()(hidden)
    return {"conv1": hidden, keys.LOGITS: classes(pooled)}


def loss_with_step(labels, scores, step, hparams):
    """A loss whose thousands are the step."""
    step = 0.0 if step is None else keras.ops.cast(step, "float32")
    return 1000 * step + (1 + step) * layers.softmax_loss(labels, scores)


TOY_MODEL = Model(toy, loss_with_step)
TOY = f"{__name__}:TOY_MODEL"


def test_a_model_trains_and_resumes(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    settings = {"model": TOY, "hparams_override": "units=3,decay_rate=0.5"}
    settings |= {"batch_size": 8, "summary_step": 1}
    for folder, max_steps in ((whole, 5), (parts, 2), (parts, 5)):
        config = Config(summary_dir=str(folder), max_steps=max_steps)
        experiment.run(dataclasses.replace(config, **settings))
    # The loss sees the true step, also after a resume.
    for folder in (whole, parts):
        cost = scalars(folder / "train")["batch_classification_cost"]
        assert {step: value // 1000 for step, value in cost.items()} == {
            step: step - 1 for step in range(1, 6)
        }
    # A resumed training ends with the same bits.
    assert_same_state(*(f / "train" / "model.ckpt-5" for f in (whole, parts)))
    hparams = open_checkpoint(whole, TOY).architecture.hparams
    assert hparams == TOY_MODEL.hparams(units=3, decay_rate=0.5)


def test_regularizers_count_in_the_loss():
    x, y = example_batch(DIGITS, 1)
    losses = {}
    for penalty in ("none", "kernel", "activity"):
        hparams = TOY_MODEL.hparams(penalty=penalty)
        compile_model(model := build_model(TOY, DIGITS, 1, hparams))
        losses[penalty] = model.test_on_batch(x, y, return_dict=True)
    for logs in losses.values():
        cost = logs["batch_classification_cost"]
        assert cost == losses["none"]["batch_classification_cost"]
        assert (logs["loss"] > cost + 1e-4) == (logs is not losses["none"])


def test_networks_that_exceed_the_memory_are_not_built(monkeypatch):
    shape, hparams = keys.ImageShape(28, 28, 1, 500), small_hparams("capsule")
    size = 4 * small_model("capsule", shape).count_params()
    memory = types.SimpleNamespace(total=3 * size)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    build_model("capsule", shape, 1, hparams, copies=3)
    with pytest.raises(UserError, match="capsule needs .* GB for 4 copies"):
        build_model("capsule", shape, 1, hparams, copies=4)


@pytest.mark.parametrize(
    "name",
    [
        *("toys", ":X", ".a:B", "no_such_module:Model"),
        *("config:Config", "config:NoSuchClass"),
    ],
)
def test_unusable_names(name):
    with pytest.raises(UserError, match=name.rpartition(":")[2]):
        find_model(name)


def test_a_module_that_the_users_own_imports_is_missing(tmp_path, monkeypatch):
    (tmp_path / "own_model.py").write_text("import no_such_module")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        find_model("own_model:Model")
