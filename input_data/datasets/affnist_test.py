import numpy as np

from config import Config
from input_data import features as keys
from input_data import registry
from input_data.registry import Split
from testing import tiny_files


def evaluate(folder):
    """Images [N, 40, 40] in [0, 1] and labels of the test split."""
    config = Config(data_dir=str(folder))
    pipeline = registry.load("affnist", Split.TEST, config)
    ((x, _),) = pipeline.evaluation_batches(100)
    return x[keys.IMAGES][..., 0], x[keys.RECONS_LABEL]


def test_a_file_or_a_folder_of_batches_is_read(tmp_path):
    expected = tiny_files.random_images(6, 40, 40)
    labels = np.array([7, 0, 9, 1, 2, 3], np.uint8)
    (tmp_path / "test_batches").mkdir()
    for number in range(2):
        part = slice(3 * number, 3 * number + 3)
        content = tiny_files.affnist_bytes(expected[part], labels[part])
        (tmp_path / "test_batches" / f"{number}.mat").write_bytes(content)
    images, read_labels = evaluate(tmp_path)
    np.testing.assert_allclose(images, expected / 255, atol=1e-6)
    np.testing.assert_array_equal(read_labels, labels)
