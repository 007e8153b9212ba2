import dataclasses
import errno
import pathlib

import keras
import numpy as np
import pytest

from common.errors import UserError
from config import Config
from input_data.features import ImageShape, Spec
from models.optimizer import compile_model
from testing import untrained
from testing.small_models import small_hparams
from training import checkpoint
from training.checkpoint import JSON_FILE, WEIGHTS_FILE

FIXTURE = pathlib.Path(__file__).parents[1] / "testing" / "checkpoint"


@pytest.fixture(scope="module")
def trained():
    """A small network after three steps, and its architecture."""
    network, architecture = untrained.small()
    random = np.random.default_rng(0)
    x = {
        "images": random.random((8, 28, 28, 1), "float32"),
        "recons_label": np.arange(8, dtype="int32"),
    }
    y = {"logits": np.eye(10)[:8].astype("float32"), "recons": x["images"]}
    for _ in range(3):
        network.train_on_batch(x, y)
    return network, architecture


@pytest.fixture
def saved(trained, tmp_path):
    """The path of its checkpoint."""
    return save(tmp_path, trained)


def save(folder, trained, step=3, keep=0, **training):
    network, architecture = trained
    described = checkpoint.Checkpoint(step, architecture, training, ("a", "b"))
    return checkpoint.save(folder, network, described, keep)


def values_of(network):
    variables = [*network.variables, *network.optimizer.variables]
    return [keras.ops.convert_to_numpy(v) for v in variables]


def test_weights_and_optimizer_state_are_restored(trained, saved):
    network, architecture = trained
    other = architecture.build(seed=9)
    compile_model(other)
    opened = checkpoint.open_checkpoint(saved)
    opened.load(other, architecture)
    assert (opened.step, opened.class_names) == (3, ["a", "b"])
    assert int(other.optimizer.iterations.numpy()) == 3
    for value, expected in zip(
        values_of(other), values_of(network), strict=True
    ):
        np.testing.assert_array_equal(value, expected)


def test_the_same_state_gives_the_same_file(trained, saved, tmp_path):
    (tmp_path / "other").mkdir()
    other = save(tmp_path / "other", trained)
    for name in (WEIGHTS_FILE, JSON_FILE):
        assert (saved / name).read_bytes() == (other / name).read_bytes()


def test_a_folder_stands_for_its_newest_checkpoint(trained, tmp_path):
    folder = tmp_path / "train"
    folder.mkdir()
    for step in (9, 10):
        save(folder, trained, step)
    for path in (tmp_path, folder, folder / "model.ckpt-10"):
        assert checkpoint.open_checkpoint(path).step == 10
    for missing in (tmp_path / "none", folder / "model.ckpt-8"):
        with pytest.raises(UserError, match=missing.name):
            checkpoint.open_checkpoint(missing)


@pytest.mark.parametrize("name", [WEIGHTS_FILE, JSON_FILE])
@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "empty"])
def test_damage_is_found(saved, name, damage):
    path = saved / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    if damage == "flip":
        path.write_bytes(content)
    elif damage == "remove":
        path.unlink()
    else:
        path.write_bytes(content[:100] if damage == "truncate" else b"")
    with pytest.raises(checkpoint.DamagedError, match=saved.name):
        checkpoint.open_checkpoint(saved)


def test_the_newest_valid_checkpoint_is_found(trained, tmp_path):
    for step in (2, 3, 4):
        save(tmp_path, trained, step)
    (tmp_path / "model.ckpt-4" / WEIGHTS_FILE).write_bytes(b"damaged")
    assert checkpoint.latest_valid(tmp_path).step == 3
    assert len(checkpoint.find_all(tmp_path)) == 3
    assert checkpoint.latest_valid(tmp_path, quarantine=True).step == 3
    assert [step for step, _ in checkpoint.find_all(tmp_path)] == [2, 3]
    save(tmp_path, trained, 4)
    for _, path in checkpoint.find_all(tmp_path):
        (path / WEIGHTS_FILE).unlink()
    with pytest.raises(UserError, match="all"):
        checkpoint.latest_valid(tmp_path, quarantine=True)


def test_keep_removes_the_oldest(trained, tmp_path):
    for step in (1, 2, 10):
        save(tmp_path, trained, step, keep=2)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "model.ckpt-10",
        "model.ckpt-2",
    ]


@pytest.mark.parametrize(
    "function", ["os.posix_fallocate", "keras.Model.save_weights"]
)
def test_a_full_disk_leaves_earlier_checkpoints(
    trained, saved, monkeypatch, function
):
    def fail(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(function, fail)
    with pytest.raises(UserError, match=r"model.ckpt-4.*No space left"):
        save(saved.parent, trained, step=4)
    assert [p.name for p in saved.parent.iterdir()] == [saved.name]
    checkpoint.open_checkpoint(saved)


@pytest.mark.parametrize(
    "change",
    [
        {"model": "baseline", "hparams": small_hparams("baseline")},
        {"hparams": small_hparams("capsule", leaky=True)},
        {"hparams": small_hparams("capsule", num_prime_capsules=3)},
        {"shape": ImageShape(28, 28, 3, 10)},
        {"shape": ImageShape(32, 28, 1, 10)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_another_network_is_refused(trained, saved, change):
    network, architecture = trained
    opened = checkpoint.open_checkpoint(saved)
    with pytest.raises(UserError, match=saved.name):
        opened.load(network, dataclasses.replace(architecture, **change))


def test_training_settings_do_not_make_another_network(trained, saved):
    network, architecture = trained
    hparams = small_hparams("capsule", learning_rate=0.1, loss_type="softmax")
    other = dataclasses.replace(architecture, hparams=hparams)
    checkpoint.open_checkpoint(saved).load(network, other)


@pytest.mark.parametrize(
    ("training", "config", "spec", "is_refused"),
    [
        ({"validate": True}, {"validate": True}, {}, False),
        ({"validate": False}, {"validate": True}, {}, True),
        ({"validate": False}, {}, {}, False),
        (
            {"dataset": "digits", "validate": False},
            {"validate": True},
            {},
            False,
        ),
        (
            {"validate": True, "of_files": True},
            {"validate": True},
            {},
            True,
        ),
        ({"seed": 1}, {}, {"split_seed": 1}, False),
        ({"seed": 1}, {}, {"split_seed": 2}, True),
        ({"a": "x"}, {}, {"split_fingerprints": {"a": "x"}}, False),
        ({"a": "x"}, {}, {"split_fingerprints": {"a": "y"}}, True),
        ({"divided_for_test": "x"}, {}, {}, True),
        ({"divided_for_validation": "x"}, {}, {}, False),
        (
            {"divided_for_validation": "x", "validate": True},
            {"validate": True},
            {},
            True,
        ),
        ({}, {}, {"class_names": ("b", "a")}, True),
        ({}, {}, {"class_names": ("a", "b")}, False),
        ({"dataset": "images"}, {}, {"class_names": ("b", "a")}, True),
        ({"dataset": "images"}, {}, {"class_names": ("b", "c")}, False),
    ],
)
def test_other_splits_are_refused(
    trained, tmp_path, training, config, spec, is_refused
):
    training = {"dataset": "mnist", "of_files": False, **training}
    path = save(tmp_path, trained, **training)
    opened = checkpoint.open_checkpoint(path)
    spec = Spec(ImageShape(28, 28, 1, 10), 1, 9, 9, **spec)
    config = Config(dataset="mnist", **config)
    if is_refused:
        with pytest.raises(UserError, match=path.name):
            opened.check_same_data(config, spec)
    else:
        opened.check_same_data(config, spec)


@pytest.mark.parametrize(
    ("settings", "resize"),
    [
        ({"image_size": 8}, "stretch"),
        ({"image_size": None}, None),
        ({"image_size": 8, "resize": None}, None),
        ({"image_size": 8, "resize": "crop"}, "crop"),
    ],
)
def test_earlier_versions_stretched(trained, tmp_path, settings, resize):
    path = save(tmp_path, trained, dataset="images", **settings)
    opened = checkpoint.open_checkpoint(path)
    config = Config().with_defaults_from(opened.training)
    assert config.resize == resize


def test_the_first_version_of_the_format_is_read():
    opened = checkpoint.open_checkpoint(FIXTURE / "model.ckpt-200")
    network = opened.architecture.build()
    compile_model(network)
    opened.load(network, opened.architecture)
    assert int(network.optimizer.iterations.numpy()) == opened.step == 200
