import dataclasses
import types

import numpy as np
import pytest

import experiment
from common.errors import UserError
from config import Config
from input_data import registry
from input_data.images import labeled_images, make_pipeline
from input_data.stored import StoredRows
from resolve import with_defaults
from testing.saved_arrays import assert_same_state
from testing.small_models import overrides
from testing.tiny_files import (
    mnist_example,
    random_images,
    write_arrays,
    write_records,
)
from training.checkpoint import read_checkpoint
from training.class_weights import class_weights, warn_if_unequal

LABELS = np.repeat([0, 1, 2, 3], [45, 20, 11, 4])
# Of compute_class_weight("balanced") of scikit-learn.
BALANCED = [0.44444444, 1.0, 1.81818182, 5.0]


def pipeline_of(labels, num_targets=1, num_classes=4):
    images = random_images(len(labels), 8, 8)
    data = labeled_images("x", images, labels, num_classes)
    if labels.ndim == 1:
        rows = np.arange(len(labels))
        stored = StoredRows(rows, (), np.int64, lambda part: labels[part])
        data = dataclasses.replace(data, labels=stored)
    config = Config(dataset="digits", num_targets=num_targets)
    return make_pipeline(data, with_defaults(config))


def fake(*counts):
    """In place of a pipeline with the classes a, b and so on."""
    spec = types.SimpleNamespace(names=["a=", *"bcd"][: len(counts)])
    return types.SimpleNamespace(
        spec=spec,
        class_counts=lambda: np.array(counts),
        has_labels_in_memory=True,
    )


def pairs_in_files(folder):
    images = random_images(3, 36, 36, 1)
    pairs = [(3, 1), (1, 2), (9, 1)]
    records = (mnist_example(pair, images) for pair in pairs)
    write_records(folder / "train.tfrecords-00000-of-00001", records)
    path = f"{folder}/train.tfrecords@1"
    return registry.load(Config(num_targets=2, data_dir=path), train=True)


def test_balanced_weights_equal_those_of_scikit_learn(tmp_path):
    for num_targets in (1, 2):
        found = class_weights("balanced", pipeline_of(LABELS, num_targets))
        np.testing.assert_allclose(found, BALANCED, rtol=1e-6)
    absent = pipeline_of(LABELS, num_classes=6)
    found = class_weights("balanced", absent)
    np.testing.assert_allclose(found, [*BALANCED, 1, 1], rtol=1e-6)
    assert not absent.has_labels_in_memory
    # Of 6 labels of three classes, 3, 1 and 2 are of a class.
    several = np.array([[1, 0, 1], [1, 1, 0], [0] * 3, [1, 0, 1]])
    found = class_weights("balanced", pipeline_of(several, num_classes=3))
    np.testing.assert_allclose(found, [2 / 3, 2, 1], rtol=1e-6)
    pairs = pairs_in_files(tmp_path)
    assert pairs.class_counts().tolist() == [0, 3, 1, 1, 0, 0, 0, 0, 0, 1]
    validation = Config(dataset="digits", validate=True)
    counts = registry.load(validation, train=True).class_counts()
    assert counts.sum() == 1437 - 360


def test_weights_by_name():
    found = class_weights("c=3, a==0.5", fake(1, 1, 1))
    np.testing.assert_array_equal(found, np.float32([0.5, 1, 3]))
    assert class_weights(None, fake(1)) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [("e=2", "'e'"), ("balance", "expected balanced"), ("", "expected")]
    + [("b=2,", "expected balanced"), ("b=x", "'x'"), ("b=2,b=2", "one weight")]
    + [(f"b={number}", "one weight") for number in ("0", "-1", "nan", "inf")],
)
def test_wrong_weights(text, reason):
    with pytest.raises(UserError, match=f"--class_weight.*{reason}"):
        class_weights(text, fake(1, 1, 1))


def test_a_warning_of_unequal_classes(capsys):
    for counts in ((5, 1), (0, 4, 0, 1), (1, 1)):
        warn_if_unequal(fake(*counts))
    assert capsys.readouterr().out == ""
    warn_if_unequal(fake(2, 11, 0, 6))
    line = capsys.readouterr().out
    assert line.startswith("Warning: 11 training images of b, 2 of a=; --class")
    assert line.count("\n") == 1


def test_trainings_store_weights_and_warn_once(tmp_path, capsys):
    write_arrays(tmp_path)
    labels = np.r_[np.zeros(12, "uint8"), 1, 2, 3]
    np.save(tmp_path / "y_train", labels)

    def train(name, **settings):
        folder = tmp_path / name
        settings |= {"dataset": "arrays", "data_dir": str(tmp_path)}
        settings |= {"hparams_override": overrides("capsule"), "batch_size": 8}
        experiment.run(Config(summary_dir=str(folder), **settings))
        path = folder / "train" / f"model.ckpt-{settings['max_steps']}"
        return read_checkpoint(path), capsys.readouterr().out

    usual, output = train("usual", max_steps=2)
    assert usual.run_settings["class_weight"] is None
    warning = "Warning: 12 training images of ant, 1 of bee"
    assert output.count(warning) == 1
    weighted, output = train("other", max_steps=2, class_weight="balanced")
    assert weighted.run_settings["class_weight"] == "balanced"
    assert "Warning" not in output
    with pytest.raises(AssertionError):
        assert_same_state(usual.path, weighted.path)
    _, output = train("usual", max_steps=3, class_weight="balanced")
    assert "Note: class_weight was None and is now balanced" in output
    _, output = train("usual", max_steps=4)
    assert "Note: class_weight was balanced and is now None" in output
    assert "Warning" not in output
