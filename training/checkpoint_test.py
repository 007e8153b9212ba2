import contextlib
import errno
import functools
import json
import pathlib
from unittest.mock import Mock

import pytest

from common.errors import UserError
from config import Config
from input_data.keys import Spec
from models.optimizer import compile_model
from testing import untrained
from testing.small_models import example_batch
from testing.tiny_files import DAMAGE
from training import checkpoint
from training.checkpoint import JSON_FILE, WEIGHTS_FILE
from training.formats import open_checkpoint

FIXTURE = pathlib.Path(__file__).parents[1] / "testing" / "checkpoint"


@pytest.fixture(scope="module")
def trained():
    """A small network after three steps, and its architecture."""
    network, architecture = untrained.small()
    for _ in range(3):
        network.train_on_batch(*example_batch(untrained.DIGITS, 1))
    return network, architecture


@pytest.fixture
def saved(trained, tmp_path):
    return save(tmp_path, trained)


def save(folder, trained, step=3, **training):
    network, architecture = trained
    described = checkpoint.Checkpoint(step, architecture, training, ("a", "b"))
    return checkpoint.save(folder, network, described)


def test_the_same_state_gives_the_same_file(trained, saved, tmp_path):
    (tmp_path / "other").mkdir()
    other = save(tmp_path / "other", trained)
    for name in (WEIGHTS_FILE, JSON_FILE):
        assert (saved / name).read_bytes() == (other / name).read_bytes()


def test_a_folder_stands_for_its_newest_checkpoint(trained, tmp_path):
    folder = tmp_path / "best" / "train"  # no SUMMARY_DIR/best
    folder.mkdir(parents=True)
    for step in (9, 10):
        save(folder, trained, step)
    for path in (folder.parent, folder, folder / "model.ckpt-10"):
        assert open_checkpoint(path).step == 10
    (tmp_path / "a.keras").write_bytes(b"")
    for missing in (tmp_path / "none", folder / "model.ckpt-8"):
        with pytest.raises(UserError, match=missing.name):
            open_checkpoint(missing)
    with pytest.raises(UserError, match="export"):
        open_checkpoint(tmp_path / "a.keras")


@pytest.mark.parametrize("name", [WEIGHTS_FILE, JSON_FILE])
@pytest.mark.parametrize("damage", ["flip", "cut", "vanish", "clear"])
def test_damage_is_found(saved, name, damage):
    DAMAGE[damage](saved / name)
    with pytest.raises(checkpoint.DamagedError, match=saved.name):
        open_checkpoint(saved)
    assert checkpoint.latest_valid(saved.parent) is None
    with pytest.raises(UserError, match=str(saved.parent)):
        checkpoint.latest_valid(saved.parent, quarantine=True)


def test_what_cannot_be_read_for_the_moment_is_not_damaged(saved, monkeypatch):
    refused = Mock(side_effect=OSError(errno.EIO, "Input/output error", "x"))
    monkeypatch.setattr(checkpoint, "_file_digest", refused)
    with pytest.raises(OSError, match="Input/output"):
        checkpoint.latest_valid(saved.parent, quarantine=True)
    assert saved.exists()


def test_settings_of_another_version_are_no_traceback(saved, monkeypatch):
    monkeypatch.setattr(checkpoint, "ImageShape", int)  # without its fields
    with pytest.raises(UserError, match=saved.name):
        open_checkpoint(saved)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        *(("step", "3"), ("architecture", []), ("class_names", [1])),
        *(("training/seconds", "x"), ("training/image_size", [8])),
        *(("training/dataset", 3), ("architecture/shape/width", 0)),
        *(("architecture/num_targets", None), ("architecture/model", 1)),
        ("architecture/hparams/remake", "false"),
        ("architecture/hparams/routing", None),
        ("architecture/hparams/routing", 1.5),
        ("architecture/hparams/loss_type", 3),
    ],
)
def test_wrong_types_with_right_checksums(saved, place, value):
    values = json.loads((saved / JSON_FILE).read_text())
    del values["sha256_of_this"]
    *outer, name = place.split("/")
    functools.reduce(dict.get, outer, values)[name] = value
    values["sha256_of_this"] = checkpoint._json_digest(values)
    (saved / JSON_FILE).write_text(json.dumps(values))
    message = f"{saved.name}: .*{name}.* must not be"
    with pytest.raises(UserError, match=message) as caught:
        open_checkpoint(saved)
    assert not isinstance(caught.value, checkpoint.DamagedError)


def test_keep_removes_the_oldest_but_the_best(trained, tmp_path):
    for step in (1, 2, 3, 10):
        save(tmp_path, trained, step)
    checkpoint.remove_old(tmp_path, 2, best_step=1)
    names = sorted(p.name for p in tmp_path.iterdir())
    assert names == ["model.ckpt-1", "model.ckpt-10", "model.ckpt-3"]


VALIDATE, DIVIDED = {"validate": True}, {"divided_for_validation": "x"}
AB, BA, BC = ({"class_names": (*names,)} for names in ("ab", "ba", "bc"))


@pytest.mark.parametrize(
    ("is_refused", "training", "config", "spec"),
    [
        *((False, VALIDATE, VALIDATE, {}), (True, {}, VALIDATE, {})),
        (False, {"dataset": "digits"}, VALIDATE, {}),
        (True, {**VALIDATE, "of_files": True}, VALIDATE, {}),
        *((n != 1, {"seed": 1}, {}, {"split_seed": n}) for n in (1, 2)),
        (False, {"a": "x"}, {}, {"split_fingerprints": {"a": "x"}}),
        (True, {"a": "x"}, {}, {"split_fingerprints": {"a": "y"}}),
        *((True, {"divided_for_test": "x"}, {}, {}), (False, DIVIDED, {}, {})),
        (True, {**DIVIDED, **VALIDATE}, VALIDATE, {}),
        *((True, {}, {}, BA), (False, {}, {}, AB)),
        *(((n is BA), {"dataset": "images"}, {}, n) for n in (BA, BC)),
    ],
)
def test_other_splits_are_refused(
    trained, tmp_path, training, config, spec, is_refused
):
    training = {"dataset": "mnist", "of_files": False, **training}
    path = save(tmp_path, trained, **training)
    spec = Spec(untrained.DIGITS, 1, 9, 9, **spec)
    config = Config(dataset="mnist", **config)
    refused = pytest.raises(UserError, match=path.name)
    with refused if is_refused else contextlib.nullcontext():
        open_checkpoint(path).check_same_data(config, spec)


def test_the_frozen_format_is_read():
    opened = open_checkpoint(FIXTURE / "model.ckpt-200")
    network = opened.architecture.build()
    compile_model(network)
    opened.load(network, opened.architecture)
    assert int(network.optimizer.iterations.numpy()) == opened.step == 200
