"""A model is added in two places: its file, and one line in the registry."""

import dataclasses

import keras
import numpy as np
import pytest

import experiment
import layers
from common.errors import UserError
from common.flags import field
from config import Config
from input_data import features as keys
from models.classifier import Classifier
from models.hparams import BaseHParams, size
from models.registry import MODELS, model_class
from testing.events import scalars
from testing.mnist_files import write_mnist
from testing.saved_arrays import saved
from training.checkpoint import checkpoint_path, open_checkpoint


@dataclasses.dataclass(frozen=True)
class ToyHParams(BaseHParams):
    momentum: float = field(0.9, "momentum of SGD", above=0)
    penalty: str = field(
        "none",
        "regularizer of the last layer",
        choices=("none", "kernel", "activity"),
    )
    units: int = size(4, "channels of the convolution")


class ToyModel(Classifier):
    """A convolution and the mean of its outputs over all positions."""

    HParams = ToyHParams

    def __init__(self, shape, num_targets, hparams, **kwargs):
        super().__init__(shape, num_targets, hparams, **kwargs)
        self.conv1 = keras.layers.Conv2D(
            hparams.units, 5, strides=3, activation="relu", name="conv1"
        )
        self.pool = keras.layers.GlobalAveragePooling2D()
        penalty = {f"{hparams.penalty}_regularizer": "l2"}
        if hparams.penalty == "none":
            penalty = {}
        self.classes = keras.layers.Dense(
            shape.num_classes, name="classes", **penalty
        )

    def activations(self, images):
        hidden = self.conv1(images)
        return {"conv1": hidden, "classes": self.classes(self.pool(hidden))}

    def call(self, x):
        return {keys.LOGITS: self.activations(x[keys.IMAGES])["classes"]}

    def classification_loss(self, labels, outputs, step):
        """A loss whose thousands are the step."""
        step = 0.0 if step is None else keras.ops.cast(step, "float32")
        loss = layers.CLASSIFICATION_LOSSES["softmax"]
        return 1000 * step + (1 + step) * loss(labels, outputs[keys.LOGITS])

    @classmethod
    def takes_any_size(cls, hparams):
        return True

    @classmethod
    def make_optimizer(cls, hparams, max_steps=None):
        rate = cls.make_schedule(hparams, max_steps)
        return keras.optimizers.SGD(rate, hparams.momentum)


def at(folder, step):
    return checkpoint_path(folder / "train", step)


@pytest.fixture
def _toy(monkeypatch):
    monkeypatch.setitem(MODELS, "toy", (__name__, "ToyModel"))


@pytest.mark.usefixtures("_toy")
def test_a_model_trains_resumes_and_evaluates(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    config = Config(
        model="toy",
        hparams_override="units=3,momentum=0.5",
        batch_size=8,
        summary_step=1,
    )
    for folder, max_steps in ((whole, 5), (parts, 2), (parts, 5)):
        experiment.run(
            dataclasses.replace(
                config, summary_dir=str(folder), max_steps=max_steps
            )
        )
    # The loss sees the true step, also after a resume.
    for folder in (whole, parts):
        cost = scalars(folder / "train")["batch_classification_cost"]
        assert {step: value // 1000 for step, value in cost.items()} == {
            step: step - 1 for step in range(1, 6)
        }
    # A resumed training ends with the same bits.
    one, two = (saved(at(folder, 5)) for folder in (whole, parts))
    assert one.keys() == two.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], two[name])
    path = str(at(whole, 5))
    opened = open_checkpoint(path)
    assert opened.architecture.hparams == ToyHParams(units=3, momentum=0.5)

    # Images of another size.
    write_mnist(tmp_path, 10, 30, size=20)
    score = experiment.run(
        Config(
            train=False,
            checkpoint=path,
            dataset="mnist",
            data_dir=str(tmp_path),
        )
    )
    assert score.num_examples == 30


@pytest.mark.usefixtures("_toy")
def test_regularizers_count_in_the_loss(tmp_path):
    losses, kernels = [], []
    for penalty in ("none", "kernel", "activity"):
        folder = tmp_path / penalty
        experiment.run(
            Config(
                model="toy",
                hparams_override=f"penalty={penalty}",
                batch_size=8,
                max_steps=1,
                summary_step=1,
                summary_dir=str(folder),
            )
        )
        losses.append(scalars(folder / "train"))
        arrays = saved(at(folder, 1))
        kernels.append(arrays["classes/vars/0"])
    plain, *others = losses
    for penalised, kernel in zip(others, kernels[1:], strict=True):
        name = "batch_classification_cost"
        assert penalised[name] == plain[name]
        assert penalised["total_loss"][1] > plain["total_loss"][1] + 1e-4
        # The weights move by it.
        assert (kernel != kernels[0]).mean() > 0.5


def test_an_unknown_model_is_named():
    with pytest.raises(UserError, match="did you mean capsule"):
        model_class("capsul")
