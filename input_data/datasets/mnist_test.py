import numpy as np
import pytest

from config import Config
from input_data import features as keys
from input_data import registry
from input_data.registry import Split
from testing.mnist_files import write_mnist


def load(folder, split, **settings):
    config = Config(data_dir=str(folder), **settings)
    return registry.load("mnist", split, config)


@pytest.mark.parametrize("eval_size", [100, 5])
def test_test_images_are_read_in_order(tmp_path, eval_size):
    images, labels = write_mnist(tmp_path, 20, 13)["t10k"]
    pipeline = load(tmp_path, Split.TEST, eval_size=eval_size)
    size = min(eval_size, 13)
    shape = keys.ImageShape(28, 28, 1, 10)
    assert pipeline.spec == keys.Spec(shape, 1, size, 13)
    ((x, _),) = pipeline.evaluation_batches(100)
    np.testing.assert_allclose(
        x[keys.IMAGES][..., 0], images[:size] / 255, atol=1e-7
    )
    np.testing.assert_array_equal(x[keys.RECONS_LABEL], labels[:size])


def test_validation_is_the_last_10000_training_images(tmp_path):
    images, _ = write_mnist(tmp_path, 50_007, 3, size=2)["train"]
    for split, expected in (
        (Split.VALID_TRAIN, images[:40_007]),
        (Split.VALID_TEST, images[40_007:]),
    ):
        ((x, _),) = load(tmp_path, split, eval_size=50_000).evaluation_batches(
            50_000
        )
        np.testing.assert_allclose(
            x[keys.IMAGES][..., 0], expected / 255, atol=1e-7
        )
