import numpy as np
import pytest

from config import Config
from input_data import features as keys
from input_data import registry
from input_data.datasets import digits
from input_data.registry import Split


def images_and_labels(split):
    pipeline = registry.load("digits", split, Config())
    batches = [
        (x[keys.IMAGES], x[keys.RECONS_LABEL])
        for x, _ in pipeline.evaluation_batches(100)
    ]
    images, labels = zip(*batches, strict=True)
    return np.concatenate(images), np.concatenate(labels)


def test_the_images_are_the_published_ones():
    with np.load(digits.FILE, allow_pickle=False) as arrays:
        images, labels = arrays["images"], arrays["labels"]
    # Figures of the published table of 1,797 x 64 values from 0 to 16.
    assert images.shape == (1797, 8, 8)
    assert (images.min(), images.max()) == (0, 16)
    assert images.sum() == 561718
    assert np.bincount(labels).tolist() == [
        178, 182, 177, 183, 181, 182, 181, 179, 174, 180,
    ]  # fmt: skip
    assert len(np.unique(images.reshape(1797, -1), axis=0)) == 1797


@pytest.mark.parametrize(
    ("split", "size"),
    [
        (Split.TRAIN, 1437),
        (Split.TEST, 360),
        (Split.VALID_TRAIN, 1077),
        (Split.VALID_TEST, 360),
    ],
)
def test_splits_are_stratified(split, size):
    images, labels = images_and_labels(split)
    assert images.shape == (size, 28, 28, 1)
    counts = np.bincount(labels, minlength=10)
    expected = size * np.bincount(images_and_labels(Split.TRAIN)[1]) / 1437
    assert np.abs(counts - expected).max() < 2


def test_splits_share_no_image():
    parts = {
        split: {image.tobytes() for image in images_and_labels(split)[0]}
        for split in Split
    }
    assert not parts[Split.TRAIN] & parts[Split.TEST]
    assert not parts[Split.VALID_TRAIN] & parts[Split.VALID_TEST]
    assert (
        parts[Split.VALID_TRAIN] | parts[Split.VALID_TEST] == parts[Split.TRAIN]
    )


def test_digits_fill_the_middle_of_the_image():
    images, _ = images_and_labels(Split.TEST)
    assert images.min() == 0.0
    assert images.max() == 1.0
    border = images.copy()
    border[:, 4:24, 4:24] = 0
    assert border.max() == 0.0
    # Means survive enlarging: 8x8 grey levels of 16 over 20x20 of 28x28.
    with np.load(digits.FILE, allow_pickle=False) as arrays:
        small = arrays["images"][-360:].astype("float64")
    np.testing.assert_allclose(
        images[:, 4:24, 4:24].mean(), small.mean() / 16, rtol=0.02
    )
