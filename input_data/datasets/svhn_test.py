import numpy as np

from config import Config
from input_data import features as keys
from input_data import registry
from input_data.registry import Split
from testing import tiny_files


def test_label_ten_is_the_digit_zero(tmp_path):
    images = tiny_files.random_images(10, 32, 32, 3)
    content = tiny_files.svhn_bytes(images, np.arange(1, 11, dtype=np.uint8))
    (tmp_path / "test_32x32.mat").write_bytes(content)
    config = Config(data_dir=str(tmp_path))
    pipeline = registry.load("svhn", Split.TEST, config)
    ((x, _),) = pipeline.evaluation_batches(100)
    np.testing.assert_allclose(x[keys.IMAGES], images / 255, atol=1e-6)
    assert x[keys.RECONS_LABEL].tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]
