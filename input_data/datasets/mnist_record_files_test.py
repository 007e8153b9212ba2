import numpy as np
import pytest

from common.errors import UserError
from config import Config
from input_data import features as keys
from input_data import registry
from input_data.datasets.mnist_record_files import PAIR, SINGLE
from input_data.records import encode_example
from input_data.registry import Split
from testing.mnist_files import write_mnist
from testing.tiny_files import write_records

SIZE = 28


def record(layout, labels, images):
    height, width, depth = images[0].shape
    features = {"height": height, "width": width, "depth": depth}
    features |= dict(zip(layout.labels, labels, strict=True))
    images = [image.tobytes() for image in images]
    features |= dict(zip(layout.images, images, strict=True))
    return encode_example(features)


def write_single(path, labels, size=SIZE, seed=0):
    """Noise images; returns them as uint8 [N, size, size, 1]."""
    images = np.random.default_rng(seed).integers(
        0, 256, (len(labels), size, size, 1), dtype=np.uint8
    )
    rows = [
        record(SINGLE, [label], [image])
        for label, image in zip(labels, images, strict=True)
    ]
    write_records(path, rows)
    return images


def write_pairs(prefix, num_shards, shard_size, shape=(13, 11, 1)):
    """Noise; returns labels [2, N] and images [3, N, *shape]."""
    generator = np.random.default_rng(0)
    count = num_shards * shard_size
    first = generator.integers(0, 10, count)
    labels = np.stack([first, (first + generator.integers(1, 10, count)) % 10])
    images = generator.integers(0, 256, (3, count, *shape), dtype=np.uint8)
    rows = [record(PAIR, labels[:, n], images[:, n]) for n in range(count)]
    for shard in range(num_shards):
        write_records(
            f"{prefix}-{shard:05d}-of-{num_shards:05d}",
            rows[shard * shard_size : (shard + 1) * shard_size],
        )
    return labels, images


def load(split, **options):
    return registry.load("mnist", split, Config(**options))


def images_of(batch):
    return batch[0][keys.IMAGES]


def training(pipeline, start, stop, seed=0, batch_size=6):
    return list(
        pipeline.training_batches(
            batch_size, seed, start, stop
        ).as_numpy_iterator()
    )


@pytest.mark.parametrize(
    ("split", "options", "name"),
    [
        (Split.TRAIN, {}, "train_2shifted_mnist.tfrecords"),
        (Split.TRAIN, {"shift": 6}, "train_6shifted_mnist.tfrecords"),
        (Split.TRAIN, {"augment": True}, "train_0shifted_mnist.tfrecords"),
        (Split.TEST, {"shift": 6}, "test_0shifted_mnist.tfrecords"),
        (Split.VALID_TRAIN, {}, "train_2shifted_mnist_valid.tfrecords"),
        (Split.VALID_TRAIN, {}, "valid_train_2shifted_mnist.tfrecords"),
        (Split.VALID_TEST, {}, "test_0shifted_mnist_valid.tfrecords"),
        (Split.VALID_TEST, {}, "valid_test_0shifted_mnist.tfrecords"),
    ],
)
def test_reads_the_file_of_each_split(tmp_path, split, options, name):
    images = write_single(tmp_path / name, [7, 2, 1])
    pipeline = load(split, data_dir=str(tmp_path), **options)
    assert pipeline.spec == keys.Spec(
        keys.ImageShape(SIZE, SIZE, 1, 10),
        num_targets=1,
        num_examples=3,
        num_images=3,
    )
    ((x, y),) = pipeline.evaluation_batches(3)
    np.testing.assert_allclose(
        x[keys.IMAGES], images / np.float32(255), atol=1e-7
    )
    np.testing.assert_array_equal(y[keys.RECONS], x[keys.IMAGES])
    assert x[keys.RECONS_LABEL].tolist() == [7, 2, 1]
    np.testing.assert_array_equal(y[keys.LOGITS], np.eye(10)[[7, 2, 1]])


def test_of_two_names_the_first_is_read(tmp_path):
    write_single(tmp_path / "valid_train_2shifted_mnist.tfrecords", [1])
    write_single(tmp_path / "train_2shifted_mnist_valid.tfrecords", [2])
    pipeline = load(Split.VALID_TRAIN, data_dir=str(tmp_path))
    ((x, _),) = pipeline.evaluation_batches(1)
    assert x[keys.RECONS_LABEL].tolist() == [2]


def test_beside_records_that_are_padded_otherwise_idx_files_are_read(tmp_path):
    write_single(tmp_path / "test_0shifted_mnist.tfrecords", [3, 4])
    write_mnist(tmp_path, num_train=2, num_test=3)
    for pad, count, size in ((None, 2, 28), (0, 2, 28), (6, 3, 40)):
        spec = load(Split.TEST, data_dir=str(tmp_path), pad=pad).spec
        assert spec.num_images == count
        assert spec.shape == keys.ImageShape(size, size, 1, 10)


def test_pairs_of_any_size(tmp_path):
    prefix = tmp_path / "multitest_4shifted_mnist.tfrecords"
    labels, images = write_pairs(prefix, num_shards=3, shard_size=5)
    pipeline = load(Split.TEST, data_dir=f"{prefix}@3", num_targets=2)
    assert pipeline.spec.shape == keys.ImageShape(13, 11, 1, 10)
    assert pipeline.spec.num_examples == pipeline.spec.num_images == 15
    assert "evaluates on the records of --data_dir" in pipeline.spec.note
    ((x, y),) = pipeline.evaluation_batches(15)
    for tensor, expected in (
        (y[keys.RECONS], images[0]),
        (y[keys.SPARE_RECONS], images[1]),
        (x[keys.IMAGES], images[2]),
    ):
        np.testing.assert_allclose(
            tensor, expected / np.float32(255), atol=1e-7
        )
    np.testing.assert_array_equal(x[keys.RECONS_LABEL], labels[0])
    np.testing.assert_array_equal(x[keys.SPARE_LABEL], labels[1])
    np.testing.assert_array_equal(
        y[keys.LOGITS], np.eye(10)[labels[0]] + np.eye(10)[labels[1]]
    )
    seen = np.concatenate(
        [
            x[keys.RECONS_LABEL]
            for x, _ in training(pipeline, 0, 5, batch_size=3)
        ]
    )
    assert sorted(seen) == sorted(labels[0])


def test_pairs_that_are_padded_as_a_training_on_the_fly_was(tmp_path):
    prefix = tmp_path / "multitest_4shifted_mnist.tfrecords"
    write_pairs(prefix, num_shards=1, shard_size=3, shape=(36, 36, 1))
    data_dir = f"{prefix}@1"
    pipeline = load(Split.TEST, data_dir=data_dir, num_targets=2, pad=4)
    assert pipeline.spec.shape == keys.ImageShape(36, 36, 1, 10)


def test_padded_records(tmp_path):
    path = tmp_path / "train_6shifted_mnist.tfrecords"
    write_single(path, [3, 4], size=40)
    for pad in (None, 6):
        pipeline = load(Split.TRAIN, data_dir=str(tmp_path), shift=6, pad=pad)
        assert pipeline.spec.shape == keys.ImageShape(40, 40, 1, 10)
        assert pipeline.spec.pad == 6
    with pytest.raises(UserError, match="--pad=0"):
        load(Split.TRAIN, data_dir=str(tmp_path), shift=6, pad=0)
    pipeline = load(Split.TRAIN, data_dir=str(tmp_path), shift=6, distort=True)
    assert images_of(training(pipeline, 0, 1)[0]).shape == (6, 36, 36, 1)


@pytest.mark.parametrize("split", [Split.VALID_TRAIN, Split.VALID_TEST])
def test_validation_takes_pairs_of_its_own_split_alone(tmp_path, split):
    names = [
        f"multi{name}_4shifted_mnist.tfrecords"
        for name in ("train", "test", "valid_train", "valid_test")
    ]
    for name in names:
        prefix = tmp_path / name
        write_pairs(prefix, num_shards=1, shard_size=2)
        options = {"data_dir": f"{prefix}@1", "num_targets": 2}
        for other in (Split.TRAIN, Split.TEST):
            assert load(other, **options).spec.num_images == 2
        if name.startswith(f"multi{split.value}_"):
            assert load(split, **options).spec.num_images == 2
        else:
            message = "--validate"
            with pytest.raises(UserError, match=message):
                load(split, **options)
