"""What a job takes from the checkpoint, and what contradicts it."""

import contextlib
import dataclasses
import io

import pytest

import checkpoints
import experiment
import figures
from checkpoints import path_of
from common.errors import UserError
from models.optimizer import compile_model
from testing.small_models import overrides
from testing.tiny_files import random_images, write_png
from training.config import Config


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Config of a training on coloured images of two sizes, resized."""
    folder = tmp_path_factory.mktemp("trained")
    for name, size in (("cat", 22), ("dog", 25)):
        for number, image in enumerate(random_images(8, size, size, 3)):
            write_png(folder / "pets" / name / f"{number}.png", image)
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


def given(config, **values):
    """A config that says no more than where the files are."""
    return Config(data_dir=config.data_dir, **values)


def evaluating(config, **values):
    checkpoint = str(path_of(f"{config.summary_dir}/train", 1))
    return given(config, train=False, checkpoint=checkpoint, **values)


def printed_by(config):
    """The lines, without that of the progress."""
    with contextlib.redirect_stdout(io.StringIO()) as output:
        experiment.run(config)
    lines = output.getvalue().splitlines()
    return [line for line in lines if not line.startswith("image ")]


def test_an_evaluation_needs_the_files_alone(trained):
    printed = printed_by(evaluating(trained))
    full = dataclasses.replace(
        trained, train=False, checkpoint=evaluating(trained).checkpoint
    )
    assert "(4 test images of images)" in printed[-1]
    assert printed_by(dataclasses.replace(full, summary_dir=None)) == printed


def test_a_resumed_training_needs_the_files_alone(trained, tmp_path):
    changed = {"max_steps": 2, "summary_dir": str(tmp_path)}
    source = path_of(f"{trained.summary_dir}/train", 1)
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / source.name).symlink_to(source)
    config = given(
        trained,
        hparams_override=trained.hparams_override,
        batch_size=4,
        **changed,
    )
    printed = printed_by(config)
    assert printed[0] == "Training capsule on images: 12 images"
    resumed = checkpoints.open(path_of(tmp_path / "train", 2))
    expected = dataclasses.replace(trained, **changed).recorded()
    for name, value in expected.items():
        assert resumed.training[name] == value


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


def test_an_ensemble_sees_the_same_images(trained, tmp_path):
    source = path_of(f"{trained.summary_dir}/train", 1)
    first, second = (tmp_path / f"member{n}" for n in range(2))
    first.symlink_to(source)
    checkpoint = checkpoints.open(source)
    model = checkpoint.architecture.build()
    compile_model(model)
    metadata = checkpoints.Metadata(
        0,
        checkpoint.architecture,
        {**checkpoint.training, "pad": 0, "image_size": 24},
        checkpoint.class_names,
    )
    second.symlink_to(checkpoints.save(tmp_path / "other", model, metadata))
    config = evaluating(trained, num_trials=2)
    with pytest.raises(UserError, match="member1 was trained on images of an"):
        experiment.run(
            dataclasses.replace(config, checkpoint=f"{tmp_path}/member{{}}")
        )
