import dataclasses
import shutil

import pytest

import experiment
import predict
from checkpoints import checkpoint
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
    root = tmp_path_factory.mktemp("provenance")
    config = Config(
        dataset="images",
        data_dir=write_folder(root / "pets", ["cat", "dog"]),
        summary_dir=str(root / "run"),
        hparams_override="num_prime_capsules=1,remake=false",
        batch_size=4,
        max_steps=1,
    )
    experiment.run(config)
    return config


def path_of(config):
    return checkpoint.path_of(f"{config.summary_dir}/train", 1)


def test_predictions_have_the_names_of_the_classes(trained, capsys):
    asked = settings(checkpoint=path_of(trained))
    assert predict.run(asked, [f"{trained.data_dir}/dog/0.png"]) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert header.split() == ["file", "class", "length", "cat", "dog"]
    assert row.split()[1] in ("cat", "dog")


def test_other_classes_are_refused(trained, tmp_path):
    other = write_folder(tmp_path / "pets", ["dog", "wolf"])
    for changes in (
        {"train": False, "checkpoint": str(path_of(trained))},
        {"max_steps": 2},
        {
            "max_steps": 2,
            "summary_dir": str(tmp_path / "new"),
            "init_checkpoint": str(path_of(trained)),
        },
    ):
        config = dataclasses.replace(trained, **changes)
        with pytest.raises(
            UserError,
            match="on the classes cat, dog, but .*images here are dog, wolf",
        ):
            experiment.run(dataclasses.replace(config, data_dir=other))
        experiment.run(config)


def add_images(root, count):
    for seed in range(count):
        (image,) = random_images(1, 18, 18, seed=100 + seed)
        write_png(root / "cat" / f"added{seed}.png", image[..., None])


def test_files_that_come_leave_the_others_where_they_are(trained, tmp_path):
    shutil.copytree(trained.data_dir, tmp_path / "pets")
    add_images(tmp_path / "pets", 20)
    config = dataclasses.replace(
        trained,
        train=False,
        checkpoint=str(path_of(trained)),
        data_dir=str(tmp_path / "pets"),
    )
    experiment.run(config)


def test_images_that_would_change_sides_are_refused(trained, tmp_path):
    data_dir = tmp_path / "pets"
    for name in ("cat", "dog"):
        for number in range(2):
            (image,) = random_images(1, 18, 18, seed=number)
            write_png(data_dir / name / f"{number}.png", image[..., None])
    config = dataclasses.replace(
        trained, data_dir=str(data_dir), summary_dir=str(tmp_path / "run")
    )
    experiment.run(config)
    evaluation = dataclasses.replace(
        config, train=False, checkpoint=str(path_of(config))
    )
    experiment.run(evaluation)
    # Of two the nearest was held out by need; of many others are by chance.
    add_images(data_dir, 20)
    for changes in (evaluation, dataclasses.replace(config, max_steps=2)):
        with pytest.raises(UserError, match="were divided otherwise: since"):
            experiment.run(changes)
