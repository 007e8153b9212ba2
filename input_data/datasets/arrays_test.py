import gzip
import re

import numpy as np
import pytest

from common.errors import UserError
from config import Config
from input_data import features as keys
from input_data import registry
from input_data.datasets import arrays
from input_data.splits import Split
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


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"x_train": IMAGES / 255}, "x_train.npy holds float64 .*uint8"),
        ({"x_train": IMAGES[0]}, "of the shape (12, 14): expected"),
        ({"x_train": IMAGES[:0]}, "has no images"),
        ({"x_train": np.array([{}])}, "is not an array of numbers as numpy"),
        ({"x_train": np.uint8(3)}, "x_train.npy is not an array of numbers"),
        ({"y_train": LABELS[:5]}, "has 6 images, but there are 5 labels"),
        ({"y_train": LABELS - 1}, "from -1 to 2: they must be from 0 to 9999"),
        ({"y_train": LABELS / 2}, "has the label 0.5"),
        ({"y_train": np.eye(4)[LABELS]}, "of the shape (6, 4): expected the"),
        ({"y_train": 0 * LABELS, "y_test": LABELS[:2]}, "are all 0: two or"),
        ({"y_train": LABELS > 1}, "holds bool of the shape (6,)"),
        ({"y_train": None}, "has no y_train.npy or y_train.npy.gz; it has"),
    ],
)
def test_other_arrays_are_named(tmp_path, changed, message):
    with pytest.raises(UserError) as caught:
        arrays.read_arrays(write(tmp_path, **changed), training=True)
    pattern = re.escape(message).replace(r"\.\*", ".*")
    assert re.search(pattern, str(caught.value)), caught.value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"a\nb\n", "from 0 to 3: they must be from 0 to 1"),
        (b"a\nb\na\nc\n", "has the names 'a', 'b', 'a', 'c': expected two o"),
        (b"a\n\nb\nc\n", "has the names 'a', '', 'b', 'c'"),
        (b"", "has the names of no class"),
        (b"\xff\na\n", "is not UTF-8"),
    ],
)
def test_other_names_of_classes_are_named(tmp_path, text, message):
    write(tmp_path)
    (tmp_path / "class_names.txt").write_bytes(text)
    with pytest.raises(UserError, match=message):
        arrays.read_arrays(tmp_path, training=True)


def test_files_that_are_no_arrays_are_named(tmp_path):
    write(tmp_path)
    path = tmp_path / "x_train.npy"
    whole = path.read_bytes()
    for content, message in (
        (b"", "x_train.npy is not an array of numbers as numpy.save writes"),
        (b"PK\3\4" + whole, "is not an array of numbers as numpy.save writes"),
        (whole[:8] + b"\x14\0" + whole[10:], "header is b\"{'descr': '"),
        (whole.replace(b"|u1", b"<f1"), "holds <f1, which is no type of"),
        (whole[:-1], "is cut off"),
        (whole + b"\0", "damaged or too long"),
    ):
        path.write_bytes(content)
        with pytest.raises(UserError, match=message):
            arrays.read_arrays(tmp_path, training=True)


def test_a_folder_is_needed():
    with pytest.raises(UserError, match="arrays needs --data_dir, a folder"):
        registry.load("arrays", Split.TRAIN, Config())
