"""A training on a folder of images, and the jobs on its checkpoint.

What they take from it: how images look, and the names of their classes. What
they refuse: images that look otherwise, other classes, and images that the
network was trained on and that would now be held out to test it.
"""

import contextlib
import dataclasses
import io
import shutil

import pytest

import checkpoints
import experiment
import figures
import predict
from checkpoints import path_of
from old.errors import UserError
from predict_test import settings
from testing import untrained
from testing.small_models import overrides
from testing.tiny_files import random_images, write_png
from training.config import Config


def write(folder, count, size=22, name=""):
    for number, image in enumerate(random_images(count, size, size, 3)):
        write_png(folder / f"{name}{number}.png", image)


def train(folder, count):
    """Config of a training on coloured images of two sizes, resized."""
    for name, size in (("cat", 22), ("dog", 25)):
        write(folder / "pets" / name, count, size)
    config = Config(
        dataset="images",
        data_dir=str(folder / "pets"),
        image_size=20,
        color=True,
        pad=2,
        distort=True,
        summary_dir=str(folder / "run"),
        hparams_override=overrides("capsule", routing=1),
        batch_size=4,
        max_steps=1,
    )
    experiment.run(config)
    return config


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return train(tmp_path_factory.mktemp("trained"), 8)


def checkpoint_of(config):
    return path_of(f"{config.summary_dir}/train", 1)


def evaluating(config, **values):
    """A config that says no more than where the files are."""
    checkpoint = str(checkpoint_of(config))
    return Config(
        train=False, checkpoint=checkpoint, data_dir=config.data_dir, **values
    )


def resumed(config, folder):
    """What makes it go on to step 2, in a folder of its own."""
    source = checkpoint_of(config)
    (folder / "train").mkdir()
    (folder / "train" / source.name).symlink_to(source)
    return {"max_steps": 2, "summary_dir": str(folder)}


def printed_by(config):
    """The lines, without that of the progress."""
    with contextlib.redirect_stdout(io.StringIO()) as output:
        experiment.run(config)
    lines = output.getvalue().splitlines()
    return [line for line in lines if not line.startswith("image ")]


def test_an_evaluation_needs_the_files_alone(trained):
    printed = printed_by(evaluating(trained))
    full = dataclasses.replace(
        trained, train=False, checkpoint=str(checkpoint_of(trained))
    )
    assert "(4 test images of images)" in printed[-1]
    assert printed_by(dataclasses.replace(full, summary_dir=None)) == printed


def test_a_resumed_training_needs_the_files_alone(trained, tmp_path):
    changed = resumed(trained, tmp_path)
    config = Config(
        data_dir=trained.data_dir,
        hparams_override=trained.hparams_override,
        batch_size=4,
        **changed,
    )
    printed = printed_by(config)
    assert printed[0] == "Training capsule on images: 12 images"
    checkpoint = checkpoints.open(path_of(tmp_path / "train", 2))
    expected = dataclasses.replace(trained, **changed).recorded()
    for name, value in expected.items():
        assert checkpoint.training[name] == value


def test_figures_need_the_files_alone(trained, tmp_path):
    (path,) = figures.draw(
        ["reconstructions"], evaluating(trained), tmp_path, num_examples=1
    )
    assert path.stat().st_size > 0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"image_size": 24}, "24x24x3.*; --image_size=24 was 20 in its train"),
        ({"color": False}, "20x20x1.*; --color=False was True in its training"),
        ({"distort": False}, "24x24x3.*; --distort=False was True in its"),
        ({"pad": 3}, "22x22x3.*; --pad=3 was 2 in its training"),
    ],
)
def test_a_contradiction_names_the_flag(trained, values, message):
    with pytest.raises(UserError, match=message):
        experiment.run(evaluating(trained, **values))


def test_another_data_set_takes_nothing():
    training = {"dataset": "images", "pad": 2, "color": True}
    other = Config(dataset="mnist")
    assert other.as_in(training) == other
    assert Config().as_in(training) == Config(
        dataset="images", pad=2, color=True
    )
    # Files and no name are MNIST's where the other data set has no files.
    files = Config(data_dir="files")
    assert files.as_in({"dataset": "digits", "pad": 2}) == files
    assert files.as_in(training).dataset == "images"


def test_what_is_recorded_must_be_in_range():
    with pytest.raises(UserError, match="records --pad=-1, which must be at"):
        Config().as_in({"dataset": "digits", "pad": -1})


def test_predictions_have_the_names_of_the_classes(trained, capsys):
    asked = settings(checkpoint=checkpoint_of(trained))
    assert predict.run(asked, [f"{trained.data_dir}/dog/0.png"]) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert header.split() == ["file", "class", "length", "cat", "dog"]
    assert row.split()[1] in ("cat", "dog")


def test_other_classes_are_refused(trained, tmp_path):
    for name in ("dog", "wolf"):
        write(tmp_path / "pets" / name, 8)
    path = str(checkpoint_of(trained))
    new = {"summary_dir": str(tmp_path / "new"), "init_checkpoint": path}
    for changes in (
        {"train": False, "checkpoint": path},
        {"max_steps": 2},
        {"max_steps": 2, **new},
    ):
        config = dataclasses.replace(
            trained, data_dir=str(tmp_path / "pets"), **changes
        )
        with pytest.raises(
            UserError,
            match="on the classes cat, dog, but .*images here are dog, wolf",
        ):
            experiment.run(config)


def test_files_that_come_leave_the_others_where_they_are(trained, tmp_path):
    pets = shutil.copytree(trained.data_dir, tmp_path / "pets")
    write(pets / "cat", 25, name="added")
    more = dataclasses.replace(trained, data_dir=str(pets))
    # Five of those that came are held out too.
    assert "(9 test images of images)" in printed_by(evaluating(more))[-1]
    experiment.run(dataclasses.replace(more, **resumed(trained, tmp_path)))


def test_images_that_would_change_sides_are_refused(tmp_path):
    # No hash of the two cats says that an image is held out, so that the
    # nearest is; those of some that are added say so.
    config = train(tmp_path, 2)
    experiment.run(evaluating(config))
    write(tmp_path / "pets" / "cat", 25, name="added")
    for job in evaluating(config), dataclasses.replace(config, max_steps=2):
        with pytest.raises(UserError, match="were divided otherwise: since"):
            experiment.run(job)


def test_members_of_an_ensemble_see_the_same_images(trained, tmp_path):
    source = checkpoint_of(trained)
    (tmp_path / "member0").symlink_to(source)
    checkpoint = checkpoints.open(source)
    checkpoint.training.update(pad=0, image_size=24)
    other = checkpoints.save(
        tmp_path / "other",
        untrained.compiled(checkpoint.architecture),
        checkpoints.Metadata(
            0,
            checkpoint.architecture,
            checkpoint.training,
            checkpoint.class_names,
        ),
    )
    (tmp_path / "member1").symlink_to(other)
    config = evaluating(trained, num_trials=2)
    with pytest.raises(UserError, match="member1 was trained on images of an"):
        experiment.run(
            dataclasses.replace(config, checkpoint=f"{tmp_path}/member{{}}")
        )
