"""Every data set keeps the feature contract, and its promises on order."""

import itertools
import os

import numpy as np
import pytest
import tensorflow as tf

from common.errors import UserError
from input_data import features as keys
from input_data.registry import DATASETS, SINGLE_TARGET, Options, load
from input_data.splits import Split
from testing import tiny_files

BATCH_SIZE = 4
# For each data set: what writes its files, what else it is asked for, and the
# shape and number of classes that must come of it.
CASES = {
    "affnist": (tiny_files.write_affnist, {}, (40, 40, 1, 10)),
    "cifar10": (tiny_files.write_cifar10, {}, (24, 24, 3, 10)),
    "digits": (None, {"eval_size": tiny_files.NUM_TEST}, (28, 28, 1, 10)),
    "images": (tiny_files.write_images, {"image_size": 18}, (18, 18, 1, 3)),
    "mnist": (tiny_files.write_idx, {}, (28, 28, 1, 10)),
    "norb": (tiny_files.write_norb, {}, (32, 32, 2, 5)),
    "svhn": (tiny_files.write_svhn, {}, (32, 32, 3, 10)),
    "tfds:tiny_photos": (tiny_files.prepare_tfds, {}, (20, 24, 3, 4)),
}
NAMED_CLASSES = {
    "cifar10": ("airplane", "truck"),
    "images": ("class0", "class2"),
    "norb": ("animal", "car"),
    "tfds:tiny_photos": ("0", "3"),
}
STANDARDISED = ("cifar10", "norb")
RUNS = [
    (name, num_targets)
    for name, num_targets in itertools.product(CASES, (1, 2))
    if num_targets == 1 or name not in SINGLE_TARGET
]


def test_every_data_set_is_held_to_the_contract():
    assert {name for name in CASES if ":" not in name} == set(DATASETS)


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
    return name, num_targets, Options(**options)


def batches(dataset):
    return [
        tuple({key: t.numpy() for key, t in part.items()} for part in batch)
        for batch in dataset
    ]


def are_equal(first, second):
    return all(
        np.array_equal(one[key], other[key])
        for one, other in zip(first, second, strict=True)
        for key in one
    )


def check_batch(batch, batch_size, shape, num_targets, name):
    x, y = batch
    height, width, depth, num_classes = shape
    image_shape = (batch_size, height, width, depth)
    labels = [keys.RECONS_LABEL, keys.SPARE_LABEL][:num_targets]
    targets = [keys.RECONS, keys.SPARE_RECONS][:num_targets]
    assert set(x) == {keys.IMAGES, *labels}
    assert set(y) == {keys.LOGITS, *targets}
    for image in (x[keys.IMAGES], *(y[key] for key in targets)):
        assert image.shape == image_shape
        assert image.dtype == np.float32
        assert np.isfinite(image).all()
        if name not in STANDARDISED:
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


def test_spec_and_training_batches(data_set):
    name, num_targets, options = data_set
    pipeline = load(name, Split.TRAIN, options)
    shape = expected_shape(name, num_targets)
    assert pipeline.spec.shape == keys.ImageShape(*shape)
    assert pipeline.spec.num_targets == num_targets
    names = pipeline.class_names
    if name in NAMED_CLASSES:
        assert len(names) == pipeline.spec.shape.num_classes
        assert (names[0], names[-1]) == NAMED_CLASSES[name]
    else:
        assert names is None
    dataset = pipeline.training_batches(BATCH_SIZE, 3, 0, 6)
    x_spec, _ = dataset.element_spec
    assert x_spec[keys.IMAGES] == tf.TensorSpec(
        (BATCH_SIZE, *shape[:3]), tf.float32
    )
    found = batches(dataset)
    assert len(found) == 6
    for batch in found:
        check_batch(batch, BATCH_SIZE, shape, num_targets, name)


def test_batches_larger_than_the_data_set(data_set):
    name, num_targets, options = data_set
    pipeline = load(name, Split.TRAIN, options)
    (batch,) = batches(pipeline.training_batches(40, 3, 0, 1))
    shape = expected_shape(name, num_targets)
    check_batch(batch, 40, shape, num_targets, name)


def test_batches_depend_on_seed_and_step_alone(data_set):
    name, _, options = data_set
    pipeline = load(name, Split.TRAIN, options)
    found = batches(pipeline.training_batches(BATCH_SIZE, 3, 0, 6))
    again = load(name, Split.TRAIN, options)
    for start in (0, 4):
        resumed = batches(again.training_batches(BATCH_SIZE, 3, start, 6))
        for before, after in zip(found[start:], resumed, strict=True):
            assert are_equal(before, after)
    (other_seed,) = batches(pipeline.training_batches(BATCH_SIZE, 4, 0, 1))
    assert not are_equal(found[0], other_seed)
    assert not are_equal(found[0], found[1])


def test_evaluation_sees_every_example_once_in_fixed_order(data_set):
    name, num_targets, options = data_set
    pipeline = load(name, Split.TEST, options)
    assert pipeline.spec.num_examples == tiny_files.NUM_TEST
    found = batches(pipeline.evaluation_batches(BATCH_SIZE))
    shape = expected_shape(name, num_targets)
    for batch, size in zip(found, (4, 3), strict=True):
        check_batch(batch, size, shape, num_targets, name)
    images = np.concatenate([x[keys.IMAGES] for x, _ in found])
    assert len(np.unique(images, axis=0)) == tiny_files.NUM_TEST
    again = batches(load(name, Split.TEST, options).evaluation_batches(4))
    for before, after in zip(found, again, strict=True):
        assert are_equal(before, after)


@pytest.mark.parametrize("name", sorted(set(CASES) - {"digits", "mnist"}))
def test_validation_divides_the_training_images(name, tmp_path):
    write, other, _ = CASES[name]
    write(tmp_path)
    options = Options(data_dir=str(tmp_path), **other)
    counts = {
        split: load(name, split, options).spec.num_examples for split in Split
    }
    assert counts[Split.TEST] == tiny_files.NUM_TEST
    assert counts[Split.TRAIN] == tiny_files.NUM_TRAIN
    assert counts[Split.VALID_TEST] == 3
    assert counts[Split.VALID_TRAIN] == tiny_files.NUM_TRAIN - 3


@pytest.mark.parametrize("name", SINGLE_TARGET)
def test_two_targets_are_refused_where_they_make_no_sense(name):
    with pytest.raises(UserError, match=f"{name}.*--num_targets=2"):
        load(name, Split.TRAIN, Options(num_targets=2))


@pytest.mark.parametrize("name", ["no_such_set", "tfds:", ""])
def test_unknown_name_lists_the_valid_ones(name):
    with pytest.raises(UserError, match=r"cifar10, digits.*tfds:NAME"):
        load(name, Split.TRAIN, Options())


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("cifar10", {"image_size": 32}),
        ("mnist", {"color": True}),
        ("tfds:mnist", {"color": True}),
    ],
)
def test_options_of_other_data_sets_are_refused(name, wrong):
    with pytest.raises(UserError, match=f"--{next(iter(wrong))}.*{name}"):
        load(name, Split.TRAIN, Options(**wrong))


@pytest.mark.parametrize("name", sorted(set(DATASETS) - {"digits"}))
def test_missing_folder_and_empty_folder_are_named(name, tmp_path):
    for data_dir in (tmp_path / "missing", tmp_path):
        with pytest.raises(UserError, match=str(data_dir)):
            load(name, Split.TRAIN, Options(data_dir=str(data_dir)))


@pytest.mark.parametrize(
    "name", sorted(set(DATASETS) - {"digits"} | {"MultiMNIST"})
)
@pytest.mark.parametrize("call", ["scandir", "stat"])
def test_folder_that_may_not_be_read_is_named(
    name, call, tmp_path, monkeypatch
):
    data_dir = str(tmp_path / "data")
    # Where names may be listed but files not opened, the second fails.
    refused = {"scandir": data_dir, "stat": f"{data_dir}/."}[call]
    allowed = getattr(os, call)

    def refuse(path, *arguments, **keywords):
        if str(path) == refused:
            raise PermissionError(13, "Permission denied")
        return allowed(path, *arguments, **keywords)

    monkeypatch.setattr(os, call, refuse)
    (tmp_path / "data").mkdir()
    options = {}
    if name == "MultiMNIST":
        name, options = "mnist", {"num_targets": 2}
    message = f"{data_dir} cannot be read: Permission denied"
    with pytest.raises(UserError, match=message):
        load(name, Split.TRAIN, Options(data_dir=data_dir, **options))
