"""Every data set follows the feature contract and the rules of order."""

import numpy as np
import pytest
import tensorflow as tf

from common.errors import UserError
from common.flags import parse
from config import Config
from input_data import keys
from input_data.registry import DATASETS, Split
from testing import tiny_files
from testing.splits import batches, load

# For each data set: shape, number of classes, first and last name of a class.
CASES = {
    "affnist": ((40, 40, 1, 10), None),
    "arrays": ((20, 18, 2, 4), ("ant", "dog")),
    "cifar10": ((24, 24, 3, 10), ("airplane", "truck")),
    "digits": ((28, 28, 1, 10), None),
    "fashion_mnist": ((28, 28, 1, 10), ("T-shirt/top", "Ankle boot")),
    "images": ((18, 18, 1, 3), ("class0", "class2")),
    "mnist": ((28, 28, 1, 10), None),
    "norb": ((32, 32, 2, 5), ("animal", "car")),
    "svhn": ((32, 32, 3, 10), None),
    "tfds:tiny_photos": ((20, 24, 3, 4), ("0", "3")),
}
STANDARDIZED = ("cifar10", "norb")
SINGLE_TARGET = ("affnist", "cifar10", "norb", "svhn")
RUNS = [(name, 1) for name in CASES]
RUNS += [(name, 2) for name in CASES if name not in SINGLE_TARGET]


def test_every_data_set_is_tested():
    assert {name for name in CASES if ":" not in name} == set(DATASETS)


def written(name, folder, **settings):
    """Writes the files of a data set; returns the settings that read them."""
    if name != "digits":
        tiny_files.WRITERS[name](folder)
        settings["data_dir"] = folder
    return {**settings, "image_size": 18 if name == "images" else None}


@pytest.fixture(scope="module", params=RUNS, ids=str)
def data_set(request, tmp_path_factory):
    """The name of a data set, and the settings that read it."""
    name, num_targets = request.param
    folder = tmp_path_factory.mktemp("data")
    settings = {"num_targets": num_targets, "eval_size": tiny_files.NUM_TEST}
    return name, written(name, folder, **settings)


def expected_shape(name, num_targets):
    border = 8 if num_targets == 2 else 0
    (height, width, depth, num_classes), _ = CASES[name]
    return keys.ImageShape(height + border, width + border, depth, num_classes)


def check_batch(batch, batch_size, name, num_targets):
    x, y = batch
    shape = expected_shape(name, num_targets)
    labels = keys.LABEL_BY_TARGET[:num_targets]
    targets = keys.RECONS_BY_TARGET[:num_targets]
    assert set(x) - {keys.STEP} == {keys.IMAGES, *labels}
    assert set(y) == {keys.LABELS, *targets}
    size = batch_size, shape.height, shape.width, shape.depth
    for images in (x[keys.IMAGES], *(y[key] for key in targets)):
        assert images.shape == size
        assert images.dtype == np.float32
        assert np.isfinite(images).all()
        if name not in STANDARDIZED:
            assert images.min() >= 0
            assert 0.2 < images.max() <= 1
    if num_targets == 1:
        np.testing.assert_array_equal(y[keys.RECONS], x[keys.IMAGES])
    k_hot = np.zeros((batch_size, shape.num_classes))
    for key in labels:
        assert x[key].dtype == np.int32
        k_hot[np.arange(batch_size), x[key]] += 1
    assert k_hot.max() == 1  # two targets have different classes
    assert y[keys.LABELS].dtype == np.float32
    np.testing.assert_array_equal(y[keys.LABELS], k_hot)


def test_a_data_set_is_described_and_gives_training_batches(data_set):
    name, settings = data_set
    num_targets = settings["num_targets"]
    pipeline = load(name, Split.TRAIN, **settings)
    spec = pipeline.spec
    assert spec.shape == expected_shape(name, num_targets)
    assert spec.num_targets == num_targets
    expected = 1437 if name == "digits" else tiny_files.NUM_TRAIN
    assert spec.num_images == expected
    names = spec.class_names
    assert (names and (names[0], names[-1])) == CASES[name][1]
    assert len(spec.names) == spec.shape.num_classes
    # They depend on the seed and the step alone.
    trained = batches(pipeline, 4, 0, 6)
    for step, batch in enumerate(trained):
        check_batch(batch, 4, name, num_targets)
        assert batch[0][keys.STEP].tolist() == [step] * 4
    resumed = batches(load(name, Split.TRAIN, **settings), 4, 4, 6)
    np.testing.assert_equal(resumed, trained[4:])
    images = trained[0][0][keys.IMAGES]
    for other in (*batches(pipeline, 4, 0, 1, seed=4), trained[1]):
        assert (images != other[0][keys.IMAGES]).any()
    # A batch may be larger than the data set.
    (batch,) = batches(pipeline, 40, 2, 3)
    check_batch(batch, 40, name, num_targets)
    dataset = pipeline.training_batches(40, 3, 2, 3)
    shape = batch[0][keys.IMAGES].shape
    assert dataset.element_spec[0][keys.IMAGES] == tf.TensorSpec(shape)


def test_evaluation_sees_every_example_once_in_fixed_order(data_set):
    name, settings = data_set
    pipeline = load(name, Split.TEST, **settings)
    assert pipeline.spec.num_examples == tiny_files.NUM_TEST
    evaluated = list(pipeline.evaluation_batches(4))
    for batch, size in zip(evaluated, (4, 3), strict=True):
        check_batch(batch, size, name, settings["num_targets"])
        assert keys.STEP not in batch[0]
    images = np.concatenate([x[keys.IMAGES] for x, _ in evaluated])
    assert len(np.unique(images, axis=0)) == tiny_files.NUM_TEST
    again = load(name, Split.TEST, **settings)
    first = list(again.evaluation_batches(4, stop=4))
    np.testing.assert_equal(first, evaluated[:1])
    ((x, _),) = again.evaluation_batches(100)
    np.testing.assert_array_equal(x[keys.IMAGES], images)


@pytest.mark.parametrize("name", sorted(set(CASES) - {"digits"}))
def test_validation_divides_the_training_images(name, tmp_path):
    settings = written(name, tmp_path)
    specs = [load(name, split, **settings).spec for split in Split]
    train, test, valid_train, valid_test = (s.num_examples for s in specs)
    assert test == tiny_files.NUM_TEST
    assert train == valid_train + valid_test == tiny_files.NUM_TRAIN
    # Image folders hold out images by the hash of their name.
    assert valid_test >= 3 if name == "images" else valid_test == 3
    marks = [s.split_fingerprints.get("validation_images") for s in specs]
    is_divided = name not in ("affnist", "images")
    assert (marks[2] == marks[3], bool(marks[3])) == (True, is_divided)


def test_unknown_names_and_settings_that_do_not_apply_are_refused():
    for name in ("minst", "tfds:", ""):
        with pytest.raises(UserError, match="--dataset"):
            parse(Config, [f"--dataset={name}"])
    for name, setting, value in (
        *((name, "num_targets", 2) for name in SINGLE_TARGET),
        *(("cifar10", "image_size", 32), ("norb", "shift", 1)),
        *(("cifar10", "distort", True), ("norb", "crop_area", 0.5)),
        *(("mnist", "color", True), ("mnist", "viewpoints", "azimuth")),
        ("digits", "data_dir", "folder"),
    ):
        with pytest.raises(UserError, match=f"--{setting}"):
            load(name, Split.TRAIN, **{setting: value})
