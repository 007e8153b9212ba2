"""A model is added in two places: its file, and one line in the registry."""

import dataclasses
import json
import re

import keras
import numpy as np
import pytest

import checkpoints
import experiment
import layers
import predict
from checkpoints.architecture import Architecture
from experiment_test import assert_same_state, at, scalars
from input_data import features as keys
from input_data.features import ImageShape
from models.classifier import Classifier
from models.hparams import BaseHParams, size
from models.registry import MODELS, model_class
from old.errors import UserError
from old.fields import field
from predict_test import settings
from testing.mnist_files import write_mnist
from testing.saved_arrays import saved
from testing.tiny_files import random_images, write_png
from training.config import Config


@dataclasses.dataclass(frozen=True)
class ToyHParams(BaseHParams):
    momentum: float = field(0.9, "share of the last step in the next", above=0)
    penalty: str = field(
        "none",
        "what of the last layer costs something if it is large",
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
        """Counts for more with every step, which is its thousands."""
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


@pytest.fixture
def _toy(monkeypatch):
    monkeypatch.setitem(MODELS, "toy", (__name__, "ToyModel"))


@pytest.mark.usefixtures("_toy")
def test_a_model_from_outside_does_what_all_do(tmp_path, capsys):
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
    # A resumed training ends with the bits of one that never stopped.
    assert_same_state(at(whole, 5), at(parts, 5))
    path = str(at(whole, 5))
    opened = checkpoints.open(path)
    assert opened.architecture.hparams == ToyHParams(units=3, momentum=0.5)

    # It evaluates, here on images of another size.
    write_mnist(tmp_path, 10, 30, size=20)
    capsys.readouterr()
    experiment.run(
        Config(
            train=False,
            checkpoint=path,
            dataset="mnist",
            data_dir=str(tmp_path),
        )
    )
    assert "image 30/30" in capsys.readouterr().out

    # It predicts, and what is exported gives the same.
    image = random_images(1, 28, 28, 1)[0]
    write_png(tmp_path / "a.png", image)
    exported = tmp_path / "toy.keras"
    asked = settings(checkpoint=path, export=str(exported), format="json")
    assert predict.run(asked, [str(tmp_path / "a.png")]) == 0
    printed = json.loads(capsys.readouterr().out)
    images = image[np.newaxis].astype("float32") / 255
    logits = keras.models.load_model(exported)(images)[keys.LOGITS]
    np.testing.assert_allclose(
        list(printed["logits"].values()), logits[0], rtol=1e-4, atol=1e-6
    )


@pytest.mark.usefixtures("_toy")
def test_what_its_layers_add_to_the_loss_counts(tmp_path):
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


@pytest.mark.usefixtures("_toy")
def test_its_hyper_parameters_are_its_own():
    shape = ImageShape(28, 28, 1, 10)
    for text, message in (
        ("routing=1", "unknown hyper-parameter 'routing'.*momentum=0.9: share"),
        ("units=0", "units=0 must be at least 1"),
    ):
        with pytest.raises(UserError, match=re.compile(message, re.DOTALL)):
            Architecture.from_strings("toy", shape, 1, text)
    toy = Architecture.from_strings(
        "toy", shape, 1, "units=2,learning_rate=0.5"
    )
    others = Architecture.from_strings("toy", shape, 1, "units=3,momentum=0.1")
    assert toy.network_differences(others) == [("units", 2, 3)]
    assert [name for name, *_ in toy.training_differences(others)] == [
        "learning_rate",
        "momentum",
    ]
    with pytest.raises(UserError, match="model toy has no TF1 checkpoints"):
        toy.tf1_variables()


def test_an_unknown_model_lists_the_valid_names():
    with pytest.raises(
        UserError, match=r"'capsul' \(did you mean capsule.*baseline, capsule, "
    ):
        model_class("capsul")
