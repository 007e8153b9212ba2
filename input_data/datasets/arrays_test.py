import gzip

import numpy as np
import pytest

from common.errors import UserError
from config import Config
from input_data import features as keys
from input_data import registry
from input_data.datasets import arrays
from input_data.registry import Split
from testing import tiny_files

IMAGES = tiny_files.random_images(6, 12, 14)
LABELS = np.array([0, 0, 1, 1, 3, 3])


def write(folder, **changed):
    content = {
        "x_train": IMAGES,
        "y_train": LABELS,
        "x_test": IMAGES[:3],
        "y_test": LABELS[1:4],
        **changed,
    }
    for name, array in content.items():
        if array is not None:
            np.save(folder / name, array)
    return folder


def test_arrays_are_read_as_they_are(tmp_path):
    data = arrays.read_arrays(write(tmp_path), training=True)
    np.testing.assert_array_equal(data.images, IMAGES[..., None])
    np.testing.assert_array_equal(data.labels, LABELS)
    assert data.num_classes == 4
    # The test part has as many classes as the training knows.
    assert arrays.read_arrays(tmp_path, training=False).num_classes == 4


def test_other_orders_columns_and_gzip(tmp_path):
    images = np.asfortranarray(tiny_files.random_images(6, 12, 14, 3))
    write(tmp_path, x_train=images, y_train=LABELS[:, None].astype("uint8"))
    path = tmp_path / "x_train.npy"
    (tmp_path / "x_train.npy.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    data = arrays.read_arrays(tmp_path, training=True)
    np.testing.assert_array_equal(data.images, images)
    np.testing.assert_array_equal(data.labels, LABELS)


def test_a_test_part_alone_is_evaluated(tmp_path):
    write(tmp_path, x_train=None, y_train=None)
    names = tmp_path / "class_names.txt"
    for text, count in ((None, 2), ("a\nb\nc\n\n", 3)):
        if text:
            names.write_text(text)
        options = Config(data_dir=str(tmp_path))
        pipeline = registry.load("arrays", Split.TEST, options)
        assert pipeline.spec.shape.num_classes == count
        ((x, _),) = pipeline.evaluation_batches(9)  # in their order
        np.testing.assert_allclose(x[keys.IMAGES][..., 0], IMAGES[:3] / 255)
    assert list(pipeline.spec.names) == ["a", "b", "c"]
    with pytest.raises(UserError, match=r"has no x_train\.npy or x_train\.npy"):
        registry.load("arrays", Split.TRAIN, options)


def test_a_part_of_sorted_classes_has_all(tmp_path):
    labels = np.repeat(np.arange(2), 50)
    images = tiny_files.random_images(100, 5, 5)
    write(
        tmp_path,
        **{f"x_{part}": images for part in ("train", "test")},
        **{f"y_{part}": labels for part in ("train", "test")},
    )
    options = Config(data_dir=str(tmp_path), eval_size=30)
    test = registry.load("arrays", Split.TEST, options)
    ((_, y),) = test.evaluation_batches(100)
    assert np.asarray(y[keys.LOGITS]).sum(axis=0).min() >= 5
    held_out = registry.load("arrays", Split.VALID_TEST, options)
    ((_, y),) = held_out.evaluation_batches(100)
    assert np.asarray(y[keys.LOGITS]).sum(axis=0).min() >= 3
    # With other arrays others are held out, which a checkpoint must know.
    (digest,) = held_out.spec.split_fingerprints.values()
    write(tmp_path, x_train=images[:-1], y_train=labels[:-1])
    fewer = registry.load("arrays", Split.VALID_TRAIN, options)
    assert [digest] != list(fewer.spec.split_fingerprints.values())
    training = registry.load("arrays", Split.TRAIN, options)
    assert not training.spec.split_fingerprints
    # Images are numbered as in the file.
    (number,) = training.training_indices(0, 1, 0).numpy()
    ((x, _),) = training.training_batches(1, 0, 0, 1)
    np.testing.assert_allclose(x[keys.IMAGES][0, ..., 0] * 255, images[number])
