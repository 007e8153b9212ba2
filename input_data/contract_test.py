"""Every data set follows the feature contract and the rules of order."""

import itertools
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from common.errors import UserError
from common.flags import parse
from config import Config
from input_data import features as keys
from input_data.registry import DATASETS, Split, load
from testing import tiny_files

BATCH_SIZE = 4
# For each data set: the function that writes its files, other settings, and the
# expected shape and number of classes.
CASES = {
    "affnist": (tiny_files.write_affnist, {}, (40, 40, 1, 10)),
    "arrays": (tiny_files.write_arrays, {}, (20, 18, 2, 4)),
    "cifar10": (tiny_files.write_cifar10, {}, (24, 24, 3, 10)),
    "digits": (None, {"eval_size": tiny_files.NUM_TEST}, (28, 28, 1, 10)),
    "images": (tiny_files.write_images, {"image_size": 18}, (18, 18, 1, 3)),
    "mnist": (tiny_files.write_idx, {}, (28, 28, 1, 10)),
    "norb": (tiny_files.write_norb, {}, (32, 32, 2, 5)),
    "svhn": (tiny_files.write_svhn, {}, (32, 32, 3, 10)),
    "tfds:tiny_photos": (tiny_files.prepare_tfds, {}, (20, 24, 3, 4)),
}
NAMED_CLASSES = {
    "arrays": ("ant", "dog"),
    "cifar10": ("airplane", "truck"),
    "images": ("class0", "class2"),
    "norb": ("animal", "car"),
    "tfds:tiny_photos": ("0", "3"),
}
STANDARDIZED = ("cifar10", "norb")
SINGLE_TARGET = ("affnist", "cifar10", "norb", "svhn")
RUNS = [
    (name, num_targets)
    for name, num_targets in itertools.product(CASES, (1, 2))
    if num_targets == 1 or name not in SINGLE_TARGET
]


def test_every_data_set_is_tested():
    assert {name for name in CASES if ":" not in name} == set(DATASETS)


def test_names_are_known_without_tensorflow():
    code = (
        "import sys; from input_data import registry; registry.valid_names();"
        "assert registry.is_valid_name('tfds:x'); print(*sys.modules)"
    )
    modules = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=os.path.dirname(os.path.dirname(__file__)),
    ).stdout.split()
    assert "input_data.registry" in modules
    assert not {"tensorflow", "keras", "numpy"} & set(modules)


@pytest.fixture(
    scope="module", params=RUNS, ids=lambda run: f"{run[0]}-{run[1]}"
)
def data_set(request, tmp_path_factory):
    """Name, number of targets and options of a data set with its files."""
    name, num_targets = request.param
    write, other, _ = CASES[name]
    options = {"eval_size": 1000, "num_targets": num_targets, **other}
    if num_targets == 2:
        options["eval_size"] = tiny_files.NUM_TEST
    if write is not None:
        folder = tmp_path_factory.mktemp("data")
        write(folder)
        options["data_dir"] = str(folder)
    return name, num_targets, Config(**options)


def batches(pipeline, start, stop, seed=3, batch_size=BATCH_SIZE):
    """Training batches as NumPy."""
    return list(
        pipeline.training_batches(
            batch_size, seed, start, stop
        ).as_numpy_iterator()
    )


def are_equal(first, second):
    return all(
        one.keys() == other.keys()
        and all(np.array_equal(one[key], other[key]) for key in one)
        for one, other in zip(first, second, strict=True)
    )


def check_batch(batch, batch_size, shape, num_targets, name, step=None):
    x, y = batch
    height, width, depth, num_classes = shape
    image_shape = (batch_size, height, width, depth)
    labels = [keys.RECONS_LABEL, keys.SPARE_LABEL][:num_targets]
    targets = [keys.RECONS, keys.SPARE_RECONS][:num_targets]
    if step is not None:
        assert x[keys.STEP].dtype == np.int64
        np.testing.assert_array_equal(x[keys.STEP], [step] * batch_size)
    assert set(x) - {keys.STEP} == {keys.IMAGES, *labels}
    assert (keys.STEP in x) == (step is not None)
    assert set(y) == {keys.LOGITS, *targets}
    for image in (x[keys.IMAGES], *(y[key] for key in targets)):
        assert image.shape == image_shape
        assert image.dtype == np.float32
        assert np.isfinite(image).all()
        if name not in STANDARDIZED:
            assert image.min() >= 0
            assert 0.2 < image.max() <= 1
    k_hot = np.zeros((batch_size, num_classes), np.float32)
    for key in labels:
        assert x[key].shape == (batch_size,)
        assert x[key].dtype == np.int32
        k_hot[np.arange(batch_size), x[key]] += 1
    assert y[keys.LOGITS].dtype == np.float32
    np.testing.assert_array_equal(y[keys.LOGITS], k_hot)
    assert k_hot.max() == 1  # two targets are of different classes
    if num_targets == 1:
        np.testing.assert_array_equal(y[keys.RECONS], x[keys.IMAGES])


def expected_shape(name, num_targets):
    height, width, *rest = CASES[name][2]
    border = 8 if num_targets == 2 else 0
    return (height + border, width + border, *rest)


def test_training_batches_depend_on_seed_and_step_alone(data_set):
    name, num_targets, options = data_set
    pipeline = load(name, Split.TRAIN, options)
    shape, spec = expected_shape(name, num_targets), pipeline.spec
    assert spec.shape == keys.ImageShape(*shape)
    assert spec.num_targets == num_targets
    assert spec.num_images == (
        1437 if name == "digits" else tiny_files.NUM_TRAIN
    )
    if name in NAMED_CLASSES:
        assert len(spec.class_names) == spec.shape.num_classes
        ends = (spec.class_names[0], spec.class_names[-1])
        assert ends == NAMED_CLASSES[name]
    else:
        assert spec.class_names is None

    found = batches(pipeline, 0, 6)
    assert len(found) == 6
    for step, batch in enumerate(found):
        check_batch(batch, BATCH_SIZE, shape, num_targets, name, step)
    resumed = batches(load(name, Split.TRAIN, options), 4, 6)
    for before, after in zip(found[4:], resumed, strict=True):
        assert are_equal(before, after)
    (other_seed,) = batches(pipeline, 0, 1, seed=4)
    assert not are_equal(found[0], other_seed)
    assert not np.array_equal(found[0][0]["images"], found[1][0]["images"])
    # A batch that is larger than the data set, but for the digits.
    dataset = pipeline.training_batches(40, 3, 2, 3)
    assert dataset.element_spec[0][keys.IMAGES] == tf.TensorSpec(
        (40, *shape[:3]), tf.float32
    )
    (batch,) = dataset.as_numpy_iterator()
    check_batch(batch, 40, shape, num_targets, name, step=2)


def test_evaluation_sees_every_example_once_in_fixed_order(data_set):
    name, num_targets, options = data_set
    pipeline = load(name, Split.TEST, options)
    assert pipeline.spec.num_examples == tiny_files.NUM_TEST
    found = list(pipeline.evaluation_batches(BATCH_SIZE))
    shape = expected_shape(name, num_targets)
    for batch, size in zip(found, (4, 3), strict=True):
        check_batch(batch, size, shape, num_targets, name)
    images = np.concatenate([x[keys.IMAGES] for x, _ in found])
    assert len(np.unique(images, axis=0)) == tiny_files.NUM_TEST
    again = load(name, Split.TEST, options)
    (first,) = again.evaluation_batches(BATCH_SIZE, stop=4)
    assert are_equal(found[0], first)
    ((x, _),) = again.evaluation_batches(100)
    np.testing.assert_array_equal(x[keys.IMAGES], images)


@pytest.mark.parametrize("name", sorted(set(CASES) - {"digits", "mnist"}))
def test_validation_divides_the_training_images(name, tmp_path):
    write, other, _ = CASES[name]
    write(tmp_path)
    options = Config(data_dir=str(tmp_path), **other)
    counts = {
        split: load(name, split, options).spec.num_examples for split in Split
    }
    assert counts[Split.TEST] == tiny_files.NUM_TEST
    assert counts[Split.TRAIN] == tiny_files.NUM_TRAIN
    # Of images by the hash of each name: one of each class at least.
    held_out = counts[Split.VALID_TEST]
    assert held_out >= 3 if name == "images" else held_out == 3
    assert counts[Split.VALID_TRAIN] == tiny_files.NUM_TRAIN - held_out


@pytest.mark.parametrize("name", SINGLE_TARGET)
def test_two_targets_are_refused(name):
    with pytest.raises(UserError, match=f"--num_targets=2.*{name}"):
        load(name, Split.TRAIN, Config(num_targets=2))


@pytest.mark.parametrize("name", ["minst", "tfds:", ""])
def test_unknown_names_are_refused(name):
    with pytest.raises(UserError, match="mnist"):
        load(name, Split.TRAIN, Config())
    with pytest.raises(UserError, match="--dataset"):
        parse(Config, [f"--dataset={name}"])


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("cifar10", {"image_size": 32}),
        ("norb", {"shift": 0}),
        ("norb", {"pad": 2}),
        ("cifar10", {"distort": True}),
        ("mnist", {"color": True}),
        ("tfds:mnist", {"color": True}),
    ],
)
def test_settings_that_do_not_apply_are_refused(name, wrong):
    with pytest.raises(UserError, match=f"--{next(iter(wrong))}.*{name}"):
        load(name, Split.TRAIN, Config(**wrong))


@pytest.mark.parametrize("name", sorted(set(DATASETS) - {"digits"}))
def test_missing_files_are_named(name, tmp_path):
    for data_dir in (tmp_path / "missing", tmp_path):
        with pytest.raises(UserError, match=str(data_dir)):
            load(name, Split.TRAIN, Config(data_dir=str(data_dir)))
