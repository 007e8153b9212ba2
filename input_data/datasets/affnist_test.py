import struct

import numpy as np
import pytest

from common.errors import UserError
from config import Config
from input_data import features as keys
from input_data import memory
from input_data.datasets import affnist
from input_data.splits import Split
from testing import tiny_files


def test_reads_each_column_as_an_image_row_by_row(tmp_path):
    images = tiny_files.random_images(3, 40, 40)
    labels = np.array([7, 0, 9], np.uint8)
    path = tmp_path / "x.mat"
    path.write_bytes(tiny_files.affnist_bytes(images, labels))
    data = affnist.read_file(path)
    np.testing.assert_array_equal(data.images[..., 0], images)
    np.testing.assert_array_equal(data.labels, labels)


def test_reads_a_folder_of_batches(tmp_path, monkeypatch):
    (tmp_path / "test_batches").mkdir()
    for number in (1, 2):
        images = tiny_files.random_images(2, 40, 40, seed=number)
        content = tiny_files.affnist_bytes(images, np.array([1, 2], "u1"))
        (tmp_path / "test_batches" / f"{number}.mat").write_bytes(content)
    pipeline = affnist.load(Split.TEST, Config(data_dir=tmp_path))
    assert pipeline.spec.num_examples == 4
    # Read, and then where TensorFlow keeps them: 4 images, less one byte.
    monkeypatch.setattr(memory, "available", lambda: 2 * 4 * 40**2 - 1)
    with pytest.raises(UserError, match="--dataset=affnist takes"):
        affnist.load(Split.TEST, Config(data_dir=tmp_path))


def black(labels, count=2, size=40):
    images = np.zeros((count, size, size), np.uint8)
    return tiny_files.affnist_bytes(images, np.array(labels, np.uint8))


BYTES, SIGNED = (struct.pack("<II", kind, 3200) for kind in (2, 1))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (black([1, 1]).replace(BYTES, SIGNED), "images int8"),
        (black([1, 1], size=28), "1600"),
        (black([1, 1], count=3), "2 labels"),
        (black([10, 1]), "labels from 1 to 10"),
        (black([], count=0), "no images"),
        (
            tiny_files.svhn_bytes(
                np.zeros((2, 32, 32, 3), np.uint8), np.array([1, 1], "u1")
            ),
            "affNISTdata",
        ),
        (black([1, 1])[:-9], "cut off"),
        (b"", "not a little-endian MATLAB 5 file"),
    ],
)
def test_other_content_is_named(tmp_path, content, message):
    path = tmp_path / "test.mat"
    path.write_bytes(content)
    with pytest.raises(UserError, match=f"{path}.*{message}"):
        affnist.load(Split.TEST, Config(data_dir=tmp_path))


def test_without_data_dir_the_generator_is_named():
    with pytest.raises(UserError, match=r"affnist_generate\.py"):
        affnist.load(Split.TEST, Config())


def test_evaluation_images_are_the_file_s(tmp_path):
    tiny_files.write_affnist(tmp_path)
    data = affnist.read_file(tmp_path / "test.mat")
    pipeline = affnist.load(Split.TEST, Config(data_dir=tmp_path))
    ((x, _),) = pipeline.evaluation_batches(tiny_files.NUM_TEST)
    np.testing.assert_allclose(x[keys.IMAGES], data.images / 255.0, atol=1e-6)
