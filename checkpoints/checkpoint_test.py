import dataclasses
import json
import os
import shutil
import types

import keras
import numpy as np
import pytest

import checkpoints
from checkpoints import DamagedError, Metadata, checkpoint
from checkpoints.architecture import Architecture
from checkpoints.checkpoint import JSON_FILE, WEIGHTS_FILE
from input_data.features import ImageShape
from models.capsule import HParams
from models.models_test import example_batch
from models.optimizer import compile_model
from old.errors import UserError
from testing.untrained import compiled
from training.config import Config

SHAPE = ImageShape(18, 17, 2, 3)
ARCHITECTURE = Architecture(
    "capsule",
    SHAPE,
    1,
    HParams(conv_channels=4, num_prime_capsules=1, remake=False),
)
TRAINING = {"dataset": "digits", "seed": 3, "max_steps": 2}
METADATA = Metadata(2, ARCHITECTURE, TRAINING)


def make_model(architecture=ARCHITECTURE, seed=0, steps=0):
    model = compiled(architecture, seed)
    for _ in range(steps):
        model.train_on_batch(*example_batch(SHAPE, 1))
    return model


def state(model):
    variables = [*model.variables, *model.optimizer.variables]
    return [keras.ops.convert_to_numpy(v) for v in variables]


def assert_same_state(model, other):
    for ours, theirs in zip(state(model), state(other), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    model = make_model(steps=2)
    return checkpoints.save(
        tmp_path_factory.mktemp("c"), model, METADATA
    ), model


@pytest.fixture
def saved(original, tmp_path):
    """The path of a checkpoint, alone in its folder, and its model."""
    path, model = original
    return shutil.copytree(path, tmp_path / "train" / path.name), model


@pytest.mark.parametrize("is_built", [True, False])
def test_weights_slots_and_step_come_back_bit_for_bit(saved, is_built):
    path, model = saved
    other = make_model(seed=9)
    if not is_built:
        compile_model(other)
    checkpoints.open(path).load(other, ARCHITECTURE)
    assert_same_state(other, model)
    assert int(other.optimizer.iterations) == 2
    assert max(abs(slot).max() for slot in state(other)[-4:]) > 0


def test_a_model_without_optimiser_takes_the_weights(saved):
    path, model = saved
    plain = ARCHITECTURE.build(seed=9)
    checkpoints.open(path).load(plain, ARCHITECTURE)
    for ours, theirs in zip(
        plain.get_weights(), model.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


def test_it_describes_itself(saved):
    path, _ = saved
    opened = checkpoints.open(str(path))
    assert (opened.path, opened.step) == (path, 2)
    assert opened.architecture == ARCHITECTURE
    assert opened.training == TRAINING
    assert opened.class_names is None
    assert opened.has_slots
    values = json.loads((path / JSON_FILE).read_text())
    assert values["versions"]["keras"] == keras.__version__


def flip_bit(path, position, bit=0):
    content = bytearray(path.read_bytes())
    content[position % len(content)] ^= 1 << bit
    path.write_bytes(content)


def append(path):
    with open(path, "ab") as file:
        file.write(b"{}")


def rewrite(path, change):
    """Changes a checkpoint's json as if it had been written so."""
    values = json.loads((path / JSON_FILE).read_text())
    del values["sha256_of_this"]
    change(values)
    values["sha256_of_this"] = checkpoint._json_checksum(values)
    (path / JSON_FILE).write_text(json.dumps(values))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda p: (p / WEIGHTS_FILE).unlink(), "weights.h5 cannot be read"),
        (lambda p: flip_bit(p / WEIGHTS_FILE, 77777), "weights.h5 is damaged"),
        (lambda p: os.truncate(p / WEIGHTS_FILE, 999), "h5 is damaged"),
        (lambda p: os.truncate(p / WEIGHTS_FILE, 0), "h5 is damaged"),
        (lambda p: append(p / WEIGHTS_FILE), "h5 is damaged"),
        (lambda p: os.truncate(p / JSON_FILE, 99), "json cannot be read"),
        (lambda p: append(p / JSON_FILE), "json cannot be read"),
        (lambda p: (p / JSON_FILE).write_text("[]"), "does not describe"),
        (
            lambda p: (p / JSON_FILE).write_text('{"format": 1}'),
            "does not describe",
        ),
        (lambda p: (p / JSON_FILE).unlink(), "has no checkpoint.json"),
    ],
)
def test_damage_is_named(saved, damage, message):
    path, _ = saved
    damage(path)
    with pytest.raises(DamagedError, match=message) as caught:
        checkpoints.open(path)
    assert str(path) in str(caught.value)


def test_no_name_is_no_folder():
    with pytest.raises(UserError, match="no checkpoint is named"):
        checkpoints.open("")


@pytest.mark.parametrize("name", [WEIGHTS_FILE, JSON_FILE])
def test_every_cut_and_flip_is_refused_or_harmless(saved, name):
    path, model = saved
    whole = (path / name).read_bytes()
    rng = np.random.default_rng(0)
    cuts = np.linspace(0, len(whole) - 1, 20, dtype=int)
    flips = rng.integers(len(whole), size=20)
    refused = 0
    loaded = make_model(seed=9)
    for number in range(40):
        (path / name).write_bytes(whole)
        if number < 20:
            os.truncate(path / name, cuts[number])
        else:
            flip_bit(path / name, flips[number - 20], rng.integers(8))
        try:
            opened = checkpoints.open(path)
        except DamagedError as error:
            refused += str(path) in str(error)
            continue
        opened.load(loaded, ARCHITECTURE)
        assert opened.training == TRAINING
        assert_same_state(loaded, model)
    assert refused >= 36


def test_files_that_go_between_opening_and_loading(saved):
    path, model = saved
    opened = checkpoints.open(path)
    shutil.rmtree(path)
    with pytest.raises(DamagedError, match=f"{path} cannot be read"):
        opened.load(model, ARCHITECTURE)


def test_another_format_is_refused(saved):
    path, _ = saved
    rewrite(path, lambda values: values.update(format=2))
    with pytest.raises(UserError, match="of format 2; this version reads"):
        checkpoints.open(path)


def put(*names, value=None):
    """A change of a checkpoint's json; without a value it is left out."""

    def change(values):
        *path, last = names
        for name in path:
            values = values[name]
        if value is None:
            del values[last]
        else:
            values[last] = value

    return change


SHAPE_OF = ("architecture", "shape")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        *(
            (put(*names), f"damaged: {names[-1]} is missing")
            for names in (
                ("step",),
                ("sha256",),
                ("architecture",),
                ("training",),
                ("architecture", "model"),
                ("architecture", "hparams"),
                ("architecture", "num_targets"),
                SHAPE_OF,
                (*SHAPE_OF, "height"),
            )
        ),
        (put("step", value=-1), "step is -1"),
        (put("step", value=10**30), "step is 1000"),
        (put("step", value=True), "step is True"),
        (put("training", value=[]), "training is "),
        (put("training", "seed", value="x"), "seed is x"),
        (put("training", "anything", value={}), "anything is {}"),
        (put("architecture", "num_targets", value=7), "num_targets is 7"),
        (put(*SHAPE_OF, "depth", value=0), "depth is 0"),
        (put(*SHAPE_OF, "height", value=10**5), "height is 100000"),
        (put(*SHAPE_OF, "height", value=9999), "weights, more than model.wei"),
        (put("sha256", value=7), "sha256 is 7"),
        (put("architecture", "model", value=7), "model is 7"),
        (put("class_names", value="abc"), "class_names is abc"),
        (put("class_names", value=["a", "b"]), "class_names is "),
        (put("class_names", value=["a", "b", "b"]), "class_names is "),
        (put("class_names", value=["a", "b", 3]), "class_names is "),
    ],
)
def test_what_a_sound_program_does_not_write_is_damaged(saved, change, message):
    path, _ = saved
    rewrite(path, change)
    with pytest.raises(DamagedError) as caught:
        checkpoints.open(path)
    assert f"{JSON_FILE} is damaged: " in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("architecture", "model", value="nonsense"), "nonsense"),
        (put("architecture", "hparams", "routing", value="3"), "routing is 3"),
        (put("architecture", "hparams", "routing", value=-3), "routing=-3"),
        (put("architecture", "hparams", "x", value=1), "'x'"),
        (put(*SHAPE_OF, "x", value=1), "'x'"),
    ],
)
def test_networks_of_another_version_are_refused(saved, change, message):
    path, _ = saved
    rewrite(path, change)
    with pytest.raises(UserError, match="a network of this version") as caught:
        checkpoints.open(path)
    assert not isinstance(caught.value, DamagedError)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "content",
    ['{"training": "\\ud800"}', "[" * 10**5, "9" * 5000, '{"format": []}'],
)
def test_json_of_any_form_is_one_line(saved, content):
    path, _ = saved
    (path / JSON_FILE).write_text(content)
    with pytest.raises(DamagedError) as caught:
        checkpoints.open(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value).replace(str(path), "")) < 500
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [JSON_FILE, WEIGHTS_FILE])
@pytest.mark.usefixtures("in_time")
def test_a_pipe_in_the_place_of_a_file_does_not_hang(saved, name):
    path, _ = saved
    (path / name).unlink()
    os.mkfifo(path / name)
    with pytest.raises(DamagedError, match="it is not a file"):
        checkpoints.open(path)


@pytest.mark.parametrize("name", ["x" * 300, "x/" * 3000])
def test_a_path_that_is_too_long(name):
    with pytest.raises(UserError, match="cannot be read: File name too") as e:
        checkpoints.open(name)
    assert len(str(e.value)) < 200
    assert not checkpoints.exists(name)


def test_the_newest_sound_one_is_found(saved, capsys):
    path, model = saved
    newer = checkpoints.save(
        path.parent, model, dataclasses.replace(METADATA, step=4)
    )
    assert checkpoints.newest(path.parent).path == newer
    rewrite(newer, put("training"))
    assert checkpoints.newest(path.parent).path == path
    assert os.listdir(path.parent).count("model.ckpt-4.damaged-0") == 1
    output = capsys.readouterr().out
    assert "ckpt-4/checkpoint.json is damaged: training is missing" in output
    assert "looking for the one before" in output
    (path / JSON_FILE).unlink()
    with pytest.raises(UserError, match="all checkpoints in .* are damaged"):
        checkpoints.newest(path.parent)
    assert checkpoints.newest(path.parent / "none") is None


@pytest.mark.parametrize(
    ("keep", "expected"), [(0, [2, 4, 10, 30]), (2, [10, 30]), (1, [30])]
)
def test_keep(saved, keep, expected):
    path, model = saved
    for step in (4, 10, 30):
        checkpoints.save(
            path.parent, model, dataclasses.replace(METADATA, step=step), keep
        )
    assert sorted(os.listdir(path.parent)) == sorted(
        f"model.ckpt-{step}" for step in expected
    )


def test_links_to_checkpoints_are_removed_not_what_they_lead_to(
    saved, tmp_path
):
    path, model = saved
    elsewhere = path.rename(tmp_path / "elsewhere")
    path.symlink_to(elsewhere)
    metadata = dataclasses.replace(METADATA, step=30)
    checkpoints.save(path.parent, model, metadata, 1)
    left = path.with_name(f".{path.name}.removed")
    left.symlink_to(elsewhere)
    checkpoints.remove_partial(path.parent)
    assert os.listdir(path.parent) == ["model.ckpt-30"]
    assert sorted(os.listdir(elsewhere)) == sorted([JSON_FILE, WEIGHTS_FILE])


def test_the_same_state_gives_the_same_bytes(saved, tmp_path):
    path, model = saved
    again = checkpoints.save(tmp_path / "again", model, METADATA)
    for name in (WEIGHTS_FILE, JSON_FILE):
        assert (again / name).read_bytes() == (path / name).read_bytes()


def test_another_network_is_refused(saved):
    path, model = saved
    hparams = dataclasses.replace(ARCHITECTURE.hparams, num_prime_capsules=2)
    other = dataclasses.replace(ARCHITECTURE, hparams=hparams)
    opened = checkpoints.open(path)
    with pytest.raises(
        UserError, match="another architecture: num_prime_capsules is 1 in"
    ):
        opened.load(model, other)
    with pytest.raises(UserError, match="not of this architecture") as caught:
        opened.load(make_model(other), ARCHITECTURE)
    assert "\n" not in str(caught.value)


def test_a_wrong_step_is_noticed(saved):
    path, model = saved
    renamed = path.rename(path.with_name("model.ckpt-7"))
    with pytest.raises(DamagedError, match="holds step 2, not that of its"):
        checkpoints.open(renamed)
    rewrite(renamed, lambda values: values.update(step=7))
    with pytest.raises(UserError, match="at step 2 but .* says 7"):
        checkpoints.open(renamed).load(model, ARCHITECTURE)


def test_a_file_in_the_place_of_a_checkpoint(original, tmp_path):
    (tmp_path / "model.ckpt-2").write_text("a file")
    with pytest.raises(UserError, match="ckpt-2 cannot be written: there is"):
        checkpoints.save(tmp_path, original[1], METADATA)
    assert (tmp_path / "model.ckpt-2").read_text() == "a file"


def test_what_is_no_checkpoint_lists_some_below(saved):
    path, _ = saved
    given = path.with_name("model.ckpt-3")
    with pytest.raises(UserError, match=f"there is no .*; found {path}$"):
        checkpoints.open(given)
    with pytest.raises(UserError, match="found none in"):
        checkpoints.open(path.parent / "none" / "model.ckpt-3")
    for step in range(10, 17):
        (path.parent / f"model.ckpt-{step}").mkdir()
    with pytest.raises(UserError, match="ckpt-16, .*ckpt-12 and 3 more$"):
        checkpoints.open(given)


@pytest.mark.parametrize("name", [WEIGHTS_FILE, JSON_FILE])
def test_one_file_of_a_checkpoint_names_its_folder(saved, name):
    path, _ = saved
    with pytest.raises(UserError, match=f"{name} is one file .* {path}: name"):
        checkpoints.open(path / name)


def test_a_checkpoint_that_cannot_be_removed_costs_none(
    original, tmp_path, capsys, monkeypatch
):
    def fail(*_):
        raise OSError(39, "Directory not empty", "old")

    monkeypatch.setattr(checkpoint, "remove_old", fail)
    _, model = original
    path = checkpoints.save(tmp_path, model, METADATA, keep=1)
    assert checkpoints.open(path).step == METADATA.step
    assert "Note: an older checkpoint is not removed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("then", "now", "validate", "is_refused"),
    [
        ("mnist", "tfds:mnist", True, True),
        ("tfds:mnist", "mnist", True, True),
        ("tfds:svhn_cropped", "svhn", True, True),
        ("mnist", "tfds:mnist", False, False),
        ("mnist", "tfds:fashion_mnist", True, False),
    ],
)
def test_names_of_the_same_images(then, now, validate, is_refused):
    opened = checkpoints.Checkpoint(
        2, ARCHITECTURE, {"dataset": then}, None, path="x"
    )
    config = types.SimpleNamespace(dataset_name=now, validate=validate)
    if not is_refused:
        opened.require_usable(config, None)
        return
    with pytest.raises(UserError, match=f"with --validate name {then}, so"):
        opened.require_usable(config, None)


def test_a_folder_of_checkpoints_stands_for_the_newest(saved):
    path, model = saved
    later = dataclasses.replace(METADATA, step=30)
    newest = checkpoints.save(path.parent, model, later)
    for folder in (path.parent, path.parents[1]):
        assert checkpoints.open(folder).path == newest
    flip_bit(newest / WEIGHTS_FILE, 5000)
    with pytest.raises(DamagedError, match=str(newest)):
        checkpoints.open(folder)


def test_a_folder_of_tf1_checkpoints_says_which(tmp_path):
    (tmp_path / "model.ckpt-1.index").write_text("")
    for path in (tmp_path, tmp_path / "model.ckpt-2"):
        with pytest.raises(
            UserError, match=f"found {tmp_path / 'model.ckpt-1'}$"
        ):
            checkpoints.open(path)


@pytest.mark.parametrize(
    ("config", "pipeline", "message"),
    [
        ({}, {}, None),
        ({"validate": True}, {}, "trained without --validate, on the very"),
        ({}, {"split_seed": 4}, "trained with --seed=3, which"),
        ({}, {"split_seed": 3}, None),
        (
            {},
            {"split_fingerprints": {"divided_for_test": "x"}},
            "divided otherwise",
        ),
        (
            {"divided": "x"},
            {"split_fingerprints": {"divided_for_test": "x"}},
            None,
        ),
        ({"divided": "x"}, {}, "some out for testing by itself; now folders"),
        ({}, {"class_names": ["b", "a"]}, "classes a, b, but .* are b, a:"),
        # Other data has nothing to do with that of the training.
        ({"dataset_name": "mnist", "validate": True}, {"split_seed": 4}, None),
    ],
)
def test_images_that_it_may_be_used_with(config, pipeline, message):
    training = {**TRAINING, "validate": False}
    config = {
        "dataset_name": "digits",
        "data_dir": None,
        "validate": False,
        **config,
    }
    if "divided" in config:
        training["divided_for_test"] = config.pop("divided")
    opened = checkpoints.Checkpoint(
        2, ARCHITECTURE, training, ["a", "b"], path="x"
    )
    spec = {"split_seed": None, "split_fingerprints": {}, "class_names": None}
    pipeline = {**spec, **pipeline}
    arguments = (
        types.SimpleNamespace(**config),
        types.SimpleNamespace(spec=types.SimpleNamespace(**pipeline)),
    )
    if message is None:
        opened.require_usable(*arguments)
        return
    with pytest.raises(UserError, match=f"x was .*{message}"):
        opened.require_usable(*arguments)


@pytest.mark.parametrize(
    ("dataset", "of_files", "data_dir", "is_refused"),
    [
        ("mnist", False, "folder", True),
        ("mnist", True, None, True),
        ("mnist", True, "another", False),
        ("mnist", None, None, False),
        ("tfds:mnist", False, "folder", False),
    ],
)
def test_the_held_out_images_are_the_last_of_one_order(
    dataset, of_files, data_dir, is_refused
):
    training = {**TRAINING, "dataset": dataset, "validate": True}
    if of_files is not None:
        training["of_files"] = of_files
    opened = checkpoints.Checkpoint(2, ARCHITECTURE, training, None, path="x")
    config = Config(dataset=dataset, data_dir=data_dir, validate=True)
    spec = types.SimpleNamespace(
        split_seed=None, split_fingerprints={}, class_names=None
    )
    pipeline = types.SimpleNamespace(spec=spec)
    if is_refused:
        with pytest.raises(UserError, match="x was .* whose order is not"):
            opened.require_usable(config, pipeline)
    else:
        opened.require_usable(config, pipeline)


@pytest.mark.parametrize(
    ("then", "now", "is_refused"),
    [
        ("cifar10", "arrays", True),
        ("images", "norb", True),
        ("cifar10", "norb", False),
        ("mnist", "arrays", False),
        (None, "norb", False),  # converted from TF1
    ],
)
def test_standardised_images_are_not_mistaken(then, now, is_refused):
    training = {"dataset": then} if then else {}
    opened = checkpoints.Checkpoint(2, ARCHITECTURE, training, None, path="x")
    arguments = Config(dataset=now, data_dir="folder"), None
    if is_refused:
        with pytest.raises(UserError, match=f"trained on {then}, of .* {now}"):
            opened.require_usable(*arguments)
    else:
        opened.require_usable(*arguments)
