import numpy as np

from config import Config
from input_data import features as keys
from input_data.datasets import svhn
from input_data.registry import Split
from testing import tiny_files


def test_label_ten_is_the_digit_zero(tmp_path):
    images = tiny_files.random_images(10, 32, 32, 3)
    labels = np.arange(1, 11, dtype=np.uint8)
    path = tmp_path / "test_32x32.mat"
    path.write_bytes(tiny_files.svhn_bytes(images, labels))
    data = svhn.read_svhn(tmp_path, training=False)
    np.testing.assert_array_equal(data.images, images)
    np.testing.assert_array_equal(data.labels, [1, 2, 3, 4, 5, 6, 7, 8, 9, 0])


def test_evaluation_images_are_the_pixels_in_the_unit_range(tmp_path):
    tiny_files.write_svhn(tmp_path)
    data = svhn.read_svhn(tmp_path, training=False)
    pipeline = svhn.load(Split.TEST, Config(data_dir=tmp_path))
    ((x, _),) = pipeline.evaluation_batches(tiny_files.NUM_TEST)
    np.testing.assert_allclose(x[keys.IMAGES], data.images / 255.0, atol=1e-6)
