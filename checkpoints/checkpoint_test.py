import json
import os
import pathlib

import keras
import numpy as np
import pytest

from checkpoints import checkpoint
from checkpoints.architecture import Architecture
from checkpoints.checkpoint import (
    JSON_FILE,
    WEIGHTS_FILE,
    DamagedError,
    Metadata,
)
from common.errors import UserError
from input_data.features import ImageShape
from models.capsule import HParams
from models.models_test import example_batch
from models.optimizer import compile_model

SHAPE = ImageShape(18, 17, 2, 3)
ARCHITECTURE = Architecture(
    "capsule", SHAPE, 1, HParams(num_prime_capsules=1, remake=False)
)
TRAINING = {"dataset": "digits", "seed": 3, "max_steps": 2}


def make_model(architecture=ARCHITECTURE, seed=0, steps=0):
    model = architecture.build(seed)
    compile_model(model)
    model.optimizer.build(model.trainable_variables)
    for _ in range(steps):
        model.train_on_batch(*example_batch(SHAPE, 1))
    return model


def state(model):
    variables = [*model.variables, *model.optimizer.variables]
    return [keras.ops.convert_to_numpy(v) for v in variables]


@pytest.fixture
def saved(tmp_path):
    model = make_model(steps=2)
    path = checkpoint.save(tmp_path, model, Metadata(2, ARCHITECTURE, TRAINING))
    return path, model


def test_weights_slots_and_step_come_back_bit_for_bit(saved):
    path, model = saved
    other = make_model(seed=9)
    checkpoint.load(path, other)
    for ours, theirs in zip(state(other), state(model), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert int(other.optimizer.iterations) == 2
    assert max(abs(slot).max() for slot in state(other)[-4:]) > 0


@pytest.mark.parametrize("given", ["", "train", "train/model.ckpt-3"])
def test_what_is_no_checkpoint_lists_those_below(tmp_path, given):
    path = checkpoint.save(
        tmp_path / "train", make_model(), Metadata(0, ARCHITECTURE, {})
    )
    with pytest.raises(UserError, match=f"there is no .*; found {path}$"):
        checkpoint.read_metadata(tmp_path / given)


def test_a_model_without_optimiser_takes_the_weights(saved):
    path, model = saved
    plain = ARCHITECTURE.build(seed=9)
    checkpoint.load(path, plain)
    for ours, theirs in zip(
        plain.get_weights(), model.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


def test_it_describes_itself(saved):
    path, _ = saved
    metadata = checkpoint.read_metadata(path)
    assert metadata == Metadata(2, ARCHITECTURE, TRAINING)
    values = json.loads((path / JSON_FILE).read_text())
    assert values["versions"]["keras"] == keras.__version__


def test_it_is_found_by_name_in_order_of_steps(tmp_path):
    for name in ("model.ckpt-1000", "model.ckpt-200", "model.ckpt-30"):
        (tmp_path / name).mkdir()
    for name in ("model.ckpt-x", ".model.ckpt-7.partial", "other-3"):
        (tmp_path / name).mkdir()
    (tmp_path / "model.ckpt-5").write_text("a file")
    steps = [step for step, _ in checkpoint.find_all(tmp_path)]
    assert steps == [30, 200, 1000]
    assert checkpoint.find_all(tmp_path / "none") == []


def test_an_existing_checkpoint_is_kept(saved):
    path, _ = saved
    before = {p.name: p.read_bytes() for p in path.iterdir()}
    checkpoint.save(
        path.parent, make_model(seed=5), Metadata(2, ARCHITECTURE, {})
    )
    assert {p.name: p.read_bytes() for p in path.iterdir()} == before


def test_nothing_is_left_beside_it_and_partial_ones_are_removed(saved):
    path, _ = saved
    assert os.listdir(path.parent) == [path.name]
    partial = path.with_name(".model.ckpt-9.partial")
    partial.mkdir()
    (partial / WEIGHTS_FILE).write_bytes(b"half")
    checkpoint.remove_partial(path.parent)
    assert os.listdir(path.parent) == [path.name]


def flip_bit(path, position, bit=0):
    content = bytearray(path.read_bytes())
    content[position % len(content)] ^= 1 << bit
    path.write_bytes(content)


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
        (lambda p: os.truncate(p / JSON_FILE, 99), "json cannot be read"),
        (lambda p: (p / JSON_FILE).write_text("[]"), "does not describe"),
        (
            lambda p: (p / JSON_FILE).write_text('{"format": 1}'),
            "json is damaged",
        ),
        (lambda p: (p / JSON_FILE).unlink(), "has no checkpoint.json"),
    ],
)
def test_damage_is_named(saved, damage, message):
    path, model = saved
    damage(path)
    with pytest.raises(DamagedError, match=message) as caught:
        checkpoint.load(path, model)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", [WEIGHTS_FILE, JSON_FILE])
def test_every_cut_and_flip_is_refused_or_harmless(saved, name):
    path, model = saved
    whole = (path / name).read_bytes()
    expected = state(model)
    rng = np.random.default_rng(0)
    cuts = np.linspace(0, len(whole) - 1, 20, dtype=int)
    flips = rng.integers(len(whole), size=20)
    refused = 0
    for number in range(40):
        (path / name).write_bytes(whole)
        if number < 20:
            os.truncate(path / name, cuts[number])
        else:
            flip_bit(path / name, flips[number - 20], rng.integers(8))
        loaded = make_model(seed=9)
        try:
            metadata = checkpoint.read_metadata(path)
            checkpoint.load(path, loaded)
        except DamagedError as error:
            refused += str(path) in str(error)
            continue
        assert metadata == Metadata(2, ARCHITECTURE, TRAINING)
        for ours, theirs in zip(state(loaded), expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    assert refused >= 36


def test_another_format_is_refused(saved):
    path, model = saved
    rewrite(path, lambda values: values.update(format=2))
    with pytest.raises(UserError, match="of format 2; this version reads"):
        checkpoint.load(path, model)


def test_a_damaged_one_is_set_aside_and_written_anew(saved):
    path, model = saved
    flip_bit(path / WEIGHTS_FILE, 5000)
    damaged = (path / WEIGHTS_FILE).read_bytes()
    checkpoint.save(path.parent, model, Metadata(2, ARCHITECTURE, TRAINING))
    assert checkpoint.verify(path) == 2
    aside = path.with_name("model.ckpt-2.damaged-0")
    assert (aside / WEIGHTS_FILE).read_bytes() == damaged
    assert [step for step, _ in checkpoint.find_all(path.parent)] == [2]


@pytest.mark.parametrize(
    ("keep", "expected"), [(0, [2, 4, 10, 30]), (2, [10, 30]), (1, [30])]
)
def test_keep(saved, keep, expected):
    path, model = saved
    for step in (4, 10, 30):
        checkpoint.save(
            path.parent, model, Metadata(step, ARCHITECTURE, {}), keep
        )
    assert sorted(os.listdir(path.parent)) == sorted(
        f"model.ckpt-{step}" for step in expected
    )


def test_the_same_state_gives_the_same_bytes(saved, tmp_path):
    path, model = saved
    again = checkpoint.save(
        tmp_path / "again", model, Metadata(2, ARCHITECTURE, TRAINING)
    )
    for name in (WEIGHTS_FILE, JSON_FILE):
        assert (again / name).read_bytes() == (path / name).read_bytes()


def test_a_description_without_a_network_is_refused(saved):
    path, _ = saved
    rewrite(path, lambda values: values["architecture"].pop("shape"))
    with pytest.raises(UserError, match="does not describe a network"):
        checkpoint.read_metadata(path)


def test_weights_of_another_architecture_are_refused(saved):
    path, _ = saved
    other = Architecture(
        "capsule", SHAPE, 1, HParams(num_prime_capsules=2, remake=False)
    )
    with pytest.raises(UserError, match="not of this architecture"):
        checkpoint.load(path, make_model(other))


def test_a_wrong_step_is_noticed(saved):
    path, model = saved
    renamed = path.rename(path.with_name("model.ckpt-7"))
    with pytest.raises(DamagedError, match="holds step 2, not that of its"):
        checkpoint.load(renamed, model)
    rewrite(renamed, lambda values: values.update(step=7))
    with pytest.raises(UserError, match="at step 2 but .* says 7"):
        checkpoint.load(renamed, model)


def test_a_model_whose_optimiser_is_not_built_takes_its_state(saved):
    path, model = saved
    other = ARCHITECTURE.build(seed=9)
    compile_model(other)
    checkpoint.load(path, other)
    for ours, theirs in zip(state(other), state(model), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_file_in_the_place_of_a_checkpoint(tmp_path):
    (tmp_path / "model.ckpt-2").write_text("a file")
    with pytest.raises(UserError, match="ckpt-2 cannot be written: there is"):
        checkpoint.save(tmp_path, make_model(), Metadata(2, ARCHITECTURE, {}))
    assert (tmp_path / "model.ckpt-2").read_text() == "a file"


def test_a_missing_checkpoint_lists_those_there_are(saved):
    path, _ = saved
    with pytest.raises(UserError, match=f"no checkpoint .*-3; found {path}"):
        checkpoint.read_metadata(path.with_name("model.ckpt-3"))
    with pytest.raises(UserError, match=f"found {path}"):
        checkpoint.read_metadata(path.parent)
    with pytest.raises(UserError, match="found none in"):
        checkpoint.read_metadata(path.parent / "none" / "model.ckpt-3")


def test_files_are_on_the_disk_before_the_name(tmp_path, monkeypatch):
    flushed = []
    flush, rename = checkpoint.flush, pathlib.Path.rename

    def note_flush(path):
        flushed.append(path.name)
        flush(path)

    def note_rename(path, target):
        flushed.append(f"renamed to {target.name}")
        return rename(path, target)

    monkeypatch.setattr(checkpoint, "flush", note_flush)
    monkeypatch.setattr(pathlib.Path, "rename", note_rename)
    checkpoint.save(tmp_path, make_model(), Metadata(0, ARCHITECTURE, {}))
    assert flushed == [
        WEIGHTS_FILE,
        JSON_FILE,
        ".model.ckpt-0.partial",
        "renamed to model.ckpt-0",
        tmp_path.name,
    ]


def test_a_folder_of_tf1_checkpoints_says_which(tmp_path):
    (tmp_path / "model.ckpt-1.index").write_text("")
    for path in (tmp_path, tmp_path / "model.ckpt-2"):
        with pytest.raises(
            UserError, match=f"found {tmp_path / 'model.ckpt-1'}$"
        ):
            checkpoint.read_metadata(path)
