"""The names of classes, from a training to the jobs on its checkpoint."""

import dataclasses

import pytest

import experiment
import predict
from checkpoints import path_of
from common.errors import UserError
from predict_test import settings
from testing.tiny_files import random_images, write_png
from training.config import Config


def write_folder(root, names):
    for seed, name in enumerate(names):
        for number, image in enumerate(random_images(10, 18, 18, seed=seed)):
            write_png(root / name / f"{number}.png", image[..., None])
    return str(root)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The settings of a training on the classes cat and dog."""
    root = tmp_path_factory.mktemp("trained")
    config = Config(
        dataset="images",
        data_dir=write_folder(root / "pets", ["cat", "dog"]),
        summary_dir=str(root / "run"),
        hparams_override="conv_channels=2,num_prime_capsules=1,remake=false",
        batch_size=4,
        max_steps=1,
    )
    experiment.run(config)
    return config


def checkpoint_of(config):
    return str(path_of(f"{config.summary_dir}/train", 1))


def test_predictions_have_the_names_of_the_classes(trained, capsys):
    asked = settings(checkpoint=checkpoint_of(trained))
    assert predict.run(asked, [f"{trained.data_dir}/dog/0.png"]) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert header.split() == ["file", "class", "length", "cat", "dog"]
    assert row.split()[1] in ("cat", "dog")


def test_other_classes_are_refused(trained, tmp_path):
    other = write_folder(tmp_path / "pets", ["dog", "wolf"])
    path = checkpoint_of(trained)
    evaluation = {"train": False, "checkpoint": path}
    new = {"summary_dir": str(tmp_path / "new"), "init_checkpoint": path}
    for changes in (evaluation, {"max_steps": 2}, {"max_steps": 2, **new}):
        config = dataclasses.replace(trained, data_dir=other, **changes)
        with pytest.raises(
            UserError,
            match="on the classes cat, dog, but .*images here are dog, wolf",
        ):
            experiment.run(config)
    experiment.run(dataclasses.replace(trained, **evaluation))
