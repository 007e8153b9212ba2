"""Images that a network was trained on are not held out to test it."""

import dataclasses

import pytest

import experiment
from checkpoints import path_of
from common.errors import UserError
from testing.tiny_files import random_images, write_png
from training.config import Config


def write(folder, count, name="image"):
    for number, image in enumerate(random_images(count, 18, 18, 1)):
        write_png(folder / f"{name}{number}.png", image)


def train(tmp_path, count, seed=0):
    """A training on some images of each class, and its evaluation."""
    for name in ("cat", "dog"):
        write(tmp_path / "pets" / name, count)
    config = Config(
        dataset="images",
        data_dir=str(tmp_path / "pets"),
        summary_dir=str(tmp_path / "run"),
        hparams_override="conv_channels=2,num_prime_capsules=1,remake=false",
        batch_size=4,
        max_steps=1,
        seed=seed,
    )
    experiment.run(config)
    checkpoint = str(path_of(tmp_path / "run" / "train", 1))
    evaluation = dataclasses.replace(config, train=False, checkpoint=checkpoint)
    return config, evaluation


@pytest.mark.usefixtures("no_pictures")
def test_files_that_come_leave_the_others_where_they_are(tmp_path):
    config, evaluation = train(tmp_path, 25)
    write(tmp_path / "pets" / "cat", 25, "added")
    experiment.run(evaluation)
    experiment.run(dataclasses.replace(config, max_steps=2))


@pytest.mark.usefixtures("no_pictures")
def test_images_that_would_change_sides_are_refused(tmp_path):
    # With seed 1 no hash of the two says that an image is held out, so that
    # the nearest is; those of some that are added say so.
    config, evaluation = train(tmp_path, 2, seed=1)
    experiment.run(evaluation)
    write(tmp_path / "pets" / "cat", 25, "added")
    for changes in (evaluation, dataclasses.replace(config, max_steps=2)):
        with pytest.raises(UserError, match="were divided otherwise: since"):
            experiment.run(changes)
