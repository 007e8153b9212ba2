import struct

import numpy as np
import pytest

from common.errors import UserError
from config import Config
from input_data import features as keys
from input_data.datasets import svhn
from input_data.formats.arrays import read_labels
from input_data.splits import Split
from testing import tiny_files


def test_labels_are_whole_numbers(tmp_path):
    labels = np.array([1, 1.5, 3])
    with pytest.raises(UserError, match=r"x\.mat has the label 1\.5"):
        read_labels("x.mat", labels, 1, 10)
    with pytest.raises(UserError, match="labels from nan to nan"):
        read_labels("x.mat", np.array([np.nan, 1.0]), 1, 10)
    np.testing.assert_array_equal(
        read_labels("x.mat", np.array([[2.0, 3.0]]), 1, 10), [2, 3]
    )


def test_label_ten_is_the_digit_zero(tmp_path):
    images = tiny_files.random_images(10, 32, 32, 3)
    labels = np.arange(1, 11, dtype=np.uint8)
    path = tmp_path / "test_32x32.mat"
    path.write_bytes(tiny_files.svhn_bytes(images, labels))
    data = svhn.read_svhn(tmp_path, training=False)
    np.testing.assert_array_equal(data.images, images)
    np.testing.assert_array_equal(data.labels, [1, 2, 3, 4, 5, 6, 7, 8, 9, 0])


def black(labels, count=2, size=32):
    images = np.zeros((count, size, size, 3), np.uint8)
    return tiny_files.svhn_bytes(images, np.array(labels, np.uint8))


BYTES, SIGNED = (struct.pack("<II", kind, 6144) for kind in (2, 1))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (black([1, 1]).replace(BYTES, SIGNED), "an array int8"),
        (black([0, 1]), "from 0 to 1"),
        (black([11, 1]), "from 1 to 11"),
        (black([1, 1], count=3), "expected"),
        (black([1, 1], size=28), "expected"),
        (black([], count=0), "none"),
        (
            tiny_files.affnist_bytes(
                np.zeros((2, 40, 40), np.uint8), np.array([1, 1], "u1")
            ),
            "needs X and y",
        ),
        (black([1, 1])[:-9], "cut off"),
        (b"", "not a little-endian MATLAB 5 file"),
    ],
)
def test_other_content_is_named(tmp_path, content, message):
    path = tmp_path / "train_32x32.mat"
    path.write_bytes(content)
    with pytest.raises(UserError, match=f"{path}.*{message}"):
        svhn.load(Split.TRAIN, Config(data_dir=tmp_path))


def test_evaluation_images_are_the_pixels_in_the_unit_range(tmp_path):
    tiny_files.write_svhn(tmp_path)
    data = svhn.read_svhn(tmp_path, training=False)
    pipeline = svhn.load(Split.TEST, Config(data_dir=tmp_path))
    ((x, _),) = pipeline.evaluation_batches(tiny_files.NUM_TEST)
    np.testing.assert_allclose(x[keys.IMAGES], data.images / 255.0, atol=1e-6)
