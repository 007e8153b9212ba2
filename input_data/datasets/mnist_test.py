import numpy as np

from config import Config
from input_data import features as keys
from input_data import registry
from input_data.registry import Split
from testing.mnist_files import write_mnist


def load(folder, split, **options):
    options = Config(data_dir=str(folder), **options)
    return registry.load("mnist", split, options)


def all_images(pipeline):
    return np.concatenate(
        [x[keys.IMAGES] for x, _ in pipeline.evaluation_batches(100)]
    )


def test_test_images_are_the_files_in_order(tmp_path):
    images, labels = write_mnist(tmp_path, 20, 13)["t10k"]
    pipeline = load(tmp_path, Split.TEST)
    assert pipeline.spec == keys.Spec(keys.ImageShape(28, 28, 1, 10), 1, 13, 13)
    (x, y), *more = pipeline.evaluation_batches(100)
    assert not more
    np.testing.assert_allclose(x[keys.IMAGES][..., 0], images / 255, atol=1e-7)
    np.testing.assert_array_equal(x[keys.RECONS_LABEL], labels)
    np.testing.assert_array_equal(y[keys.LOGITS], np.eye(10)[labels])
    np.testing.assert_array_equal(y[keys.RECONS], x[keys.IMAGES])


def test_validation_is_the_last_10000_training_images(tmp_path):
    images, _ = write_mnist(tmp_path, 10_007, 3, size=6)["train"]
    seen = all_images(load(tmp_path, Split.VALID_TEST))
    np.testing.assert_allclose(seen[..., 0], images[7:] / 255, atol=1e-7)
    assert load(tmp_path, Split.VALID_TRAIN).spec.num_examples == 7
    kept = all_images(load(tmp_path, Split.VALID_TRAIN))
    np.testing.assert_allclose(kept[..., 0], images[:7] / 255, atol=1e-7)
