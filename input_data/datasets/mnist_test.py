import contextlib

import numpy as np
import pytest

from common.errors import UserError
from input_data import keys
from input_data.registry import Split
from testing import splits, tiny_files
from testing.tiny_files import mnist_example, random_images, write_records

TEST_PAIRS = "multitest_4shifted_mnist.tfrecords"


def write_single(path, labels, size=28):
    """Writes noise; returns it as uint8 [N, size, size, 1]."""
    images = random_images(len(labels), size, size, 1)
    pairs = zip(labels, images, strict=True)
    write_records(path, [mnist_example([n], [image]) for n, image in pairs])
    return images


def write_pairs(prefix, num_shards, shard_size, shape=(13, 11, 1)):
    """Writes noise; returns labels [N, 2] and images [N, 3, *shape]."""
    count = num_shards * shard_size
    labels = np.stack([np.arange(count) % 10, np.arange(3, count + 3) % 10], 1)
    images = random_images(count, 3, *shape)
    records = list(map(mnist_example, labels, images))
    for shard in range(num_shards):
        path = f"{prefix}-{shard:05d}-of-{num_shards:05d}"
        write_records(path, records[shard * shard_size :][:shard_size])
    return labels, images


def load(split, data_dir, **settings):
    return splits.load("mnist", split, data_dir, **settings)


@pytest.mark.parametrize(
    ("split", "settings", "name"),
    [
        (Split.TRAIN, {}, "train_2shifted_mnist"),
        (Split.TRAIN, {"shift": 6}, "train_6shifted_mnist"),
        (Split.TRAIN, {"augment": True}, "train_0shifted_mnist"),
        (Split.TEST, {"shift": 6}, "test_0shifted_mnist"),
        (Split.VALID_TRAIN, {}, "valid_train_2shifted_mnist"),
        (Split.VALID_TEST, {}, "valid_test_0shifted_mnist"),
        (Split.VALID_TEST, {}, "test_0shifted_mnist_valid"),
    ],
)
def test_the_file_of_each_split(tmp_path, split, settings, name):
    images = write_single(tmp_path / f"{name}.tfrecords", [7, 2, 1])
    # Of two names the first is read.
    second = tmp_path / "valid_test_0shifted_mnist.tfrecords"
    if not second.exists():
        write_single(second, [6, 2, 1])
    pipeline = load(split, tmp_path, **settings)
    shape = keys.ImageShape(28, 28, 1, 10)
    expected = keys.Spec(shape, 1, 3, 3, names=tuple("0123456789"))
    assert pipeline.spec == expected
    ((x, _),) = pipeline.evaluation_batches(3)
    np.testing.assert_allclose(x[keys.IMAGES], images / 255, atol=1e-6)
    assert x[keys.RECONS_LABEL].tolist() == [7, 2, 1]


def test_pairs(tmp_path):
    labels, images = write_pairs(tmp_path / TEST_PAIRS, 3, 2)
    data_dir = tmp_path / f"{TEST_PAIRS}@3"
    pipeline = load(Split.TEST, data_dir, num_targets=2)
    spec = pipeline.spec
    assert spec.shape == keys.ImageShape(13, 11, 1, 10)
    assert (spec.num_targets, spec.num_examples, spec.num_images) == (2, 6, 6)
    ((x, y),) = pipeline.evaluation_batches(6)
    stored = [y[keys.RECONS], y[keys.SPARE_RECONS], x[keys.IMAGES]]
    stored = np.stack(stored, axis=1)
    np.testing.assert_allclose(stored, images / 255, atol=1e-6)
    found = x[keys.RECONS_LABEL], x[keys.SPARE_LABEL]
    np.testing.assert_array_equal(found, labels.T)
    pipeline = load(Split.TRAIN, data_dir, num_targets=2)
    ((x, _),) = pipeline.training_batches(6, 0, 0, 1).as_numpy_iterator()
    assert sorted(x[keys.RECONS_LABEL]) == labels[:, 0].tolist()
    part = load(Split.TEST, data_dir, num_targets=2, eval_size=4)
    assert part.spec.num_examples == 4
    for settings in ({"num_targets": 1}, {"shift": 4}, {"pad": 6}):
        with pytest.raises(UserError, match=f"{TEST_PAIRS}|--shift=4"):
            load(Split.TEST, data_dir, **{"num_targets": 2, **settings})


def test_padded_records(tmp_path):
    write_single(tmp_path / "train_6shifted_mnist.tfrecords", [3, 4], size=40)
    for pad in (None, 6):
        spec = load(Split.TRAIN, tmp_path, shift=6, pad=pad).spec
        assert spec.shape == keys.ImageShape(40, 40, 1, 10)
        assert spec.settings == {"pad": 6}
    with pytest.raises(UserError, match="--pad"):
        load(Split.TRAIN, tmp_path, shift=6, pad=1)
    spec = load(Split.TRAIN, tmp_path, shift=6, distort=True).spec
    assert spec.shape == keys.ImageShape(36, 36, 1, 10)
    write_pairs(tmp_path / TEST_PAIRS, 1, 3, shape=(36, 36, 1))
    data_dir = tmp_path / f"{TEST_PAIRS}@1"
    spec = load(Split.TEST, data_dir, num_targets=2, pad=4).spec
    assert spec.shape == keys.ImageShape(36, 36, 1, 10)


def test_idx_files_are_read_if_records_have_another_padding(tmp_path):
    write_single(tmp_path / "test_0shifted_mnist.tfrecords", [3, 4])
    tiny_files.write_mnist(tmp_path, num_train=2, num_test=3)
    for pad, count, size in ((None, 2, 28), (0, 2, 28), (6, 3, 40)):
        spec = load(Split.TEST, tmp_path, pad=pad).spec
        assert spec.num_images == count
        assert spec.shape == keys.ImageShape(size, size, 1, 10)


@pytest.mark.parametrize("split", [Split.VALID_TRAIN, Split.VALID_TEST])
def test_validation_needs_pairs_of_its_split(tmp_path, split):
    for other in Split:
        prefix = tmp_path / f"multi{other.value}_4shifted_mnist.tfrecords"
        write_pairs(prefix, num_shards=1, shard_size=2)
        refused = pytest.raises(UserError, match=f"multi{split.value}")
        with contextlib.nullcontext() if other is split else refused:
            assert load(split, f"{prefix}@1", num_targets=2).spec.num_images
