import numpy as np
import pytest

from input_data import keys
from input_data.datasets import digits
from input_data.registry import Split
from testing.splits import load

FILE = np.load(digits.FILE, allow_pickle=False)


@pytest.fixture(scope="module")
def splits():
    """Images and labels of every split."""
    contents = {}
    for split in Split:
        ((x, _),) = load("digits", split).evaluation_batches(2000)
        contents[split] = (x[keys.IMAGES], x[keys.RECONS_LABEL])
    return contents


def test_the_images_are_the_published_ones():
    images, labels = FILE["images"], FILE["labels"]
    # The published table has 1,797 rows of 64 values from 0 to 16.
    assert images.shape == (1797, 8, 8)
    assert (images.min(), images.max()) == (0, 16)
    assert images.sum() == 561718
    assert np.bincount(labels).tolist() == [
        178, 182, 177, 183, 181, 182, 181, 179, 174, 180,
    ]  # fmt: skip


def test_splits_are_stratified_and_share_no_image(splits):
    sizes = [len(images) for images, _ in splits.values()]
    assert sizes == [1437, 360, 1077, 360]
    for images, labels in splits.values():
        share = np.bincount(labels) / len(images)
        assert abs(share - 0.1).max() < 0.01
    train, test, valid_train, valid_test = (
        {image.tobytes() for image in images} for images, _ in splits.values()
    )
    assert not train & test
    assert not valid_train & valid_test
    assert valid_train | valid_test == train


def test_digits_fill_the_center_of_the_image(splits):
    images, _ = splits[Split.TEST]
    assert images.shape == (360, 28, 28, 1)
    assert (images.min(), images.max()) == (0, 1)
    center = images[:, 4:24, 4:24]
    np.testing.assert_allclose(center.sum(), images.sum(), rtol=1e-6)
    # Enlarging 8x8 values up to 16 to 20x20 pixels keeps the mean.
    mean = FILE["images"][-360:].mean() / 16
    np.testing.assert_allclose(center.mean(), mean, rtol=0.02)
