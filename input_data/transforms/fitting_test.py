import numpy as np
import pytest

from input_data.dataset import DataSet
from input_data.features import ImageShape
from input_data.transforms.fitting import fit, pad_to_proportions
from testing.tiny_files import random_images

WHOLE = DataSet(load=None)


def photographs(size):
    return DataSet(load=None, photograph_size=(size, size))


def shrink(square, factor):
    """An image float [H, W] averaged under triangles of 2 * factor pixels."""
    size = square.shape[0]
    centres = (np.arange(size // factor)[:, None] + 0.5) * factor
    distance = np.abs(np.arange(size) + 0.5 - centres) / factor
    weights = np.maximum(1 - distance, 0)
    weights /= weights.sum(axis=1, keepdims=True)
    return weights @ square @ weights.T


def blob(height, width):
    """A bright shape, not symmetric, on black: uint8 [height, width, 1]."""
    image = np.zeros((height, width, 1), np.uint8)
    image[height // 3 : height * 3 // 4, width // 3 : width // 2] = 200
    image[height // 2 : height * 2 // 3, width // 3 : width * 3 // 4] = 255
    return image


@pytest.mark.parametrize(("height", "width"), [(64, 48), (48, 64), (64, 64)])
def test_is_padded_to_a_square_and_not_stretched(height, width):
    image = blob(height, width)
    square = np.zeros((64, 64))
    top, left = (64 - height) // 2, (64 - width) // 2
    square[top : top + height, left : left + width] = image[..., 0]
    fitted = fit(image, ImageShape(16, 16, 1, 10), WHOLE)
    assert fitted.shape == (16, 16, 1)
    assert fitted.dtype == np.float32
    np.testing.assert_allclose(
        fitted[..., 0], shrink(square, 4) / 255, atol=0.51 / 255
    )


def test_images_of_the_size_stay_as_they_are():
    image = random_images(1, 9, 7, 3)[0]
    np.testing.assert_array_equal(
        fit(image, ImageShape(9, 7, 3, 2), WHOLE),
        image.astype("float32") / 255,
    )


def test_is_stretched_for_networks_that_were_trained_so():
    image = np.zeros((24, 12, 1), np.uint8)
    image[:, 6:] = 255
    expected = np.zeros((12, 12, 1), np.float32)
    expected[:, 6:] = 1
    fitted = fit(image, ImageShape(12, 12, 1, 3), WHOLE, stretched=True)
    np.testing.assert_allclose(
        fitted[:, [0, 1, 2, 3, 8, 9, 10, 11]],
        expected[:, [0, 1, 2, 3, 8, 9, 10, 11]],
        atol=0.01,
    )


def test_proportions_are_those_of_the_network():
    image = np.full((10, 10, 1), 100, np.uint8)
    expected = np.zeros((6, 9, 1), np.uint8)
    expected[:, 1:7] = 100
    np.testing.assert_array_equal(pad_to_proportions(image, (6, 9)), expected)


def test_a_line_stays_a_line():
    expected = np.zeros((8, 8, 1), np.uint8)
    expected[3] = 100
    line = np.full((1, 100_000, 1), 100, np.uint8)
    np.testing.assert_array_equal(pad_to_proportions(line, (8, 8)), expected)


def test_photographs_of_cifar10_are_cropped_and_standardised():
    image = random_images(1, 32, 32, 3)[0]
    middle = image[4:28, 4:28].astype("float64")
    np.testing.assert_allclose(
        fit(image, ImageShape(24, 24, 3, 10), photographs(32)),
        (middle - middle.mean()) / middle.std(),
        atol=1e-5,
    )


def test_one_photograph_is_both_views_of_norb():
    image = random_images(1, 48, 48, 1)[0]
    middle = image[8:40, 8:40].astype("float64")
    standardised = (middle - middle.mean()) / middle.std()
    np.testing.assert_allclose(
        fit(image, ImageShape(32, 32, 2, 5), photographs(48)),
        np.repeat(standardised, 2, axis=-1),
        atol=1e-5,
    )


def test_a_flat_photograph_is_zero():
    image = np.full((32, 32, 3), 7, np.uint8)
    fitted = fit(image, ImageShape(24, 24, 3, 10), photographs(32))
    np.testing.assert_array_equal(fitted, np.zeros((24, 24, 3)))


@pytest.mark.parametrize("stretched", [True, False])
def test_what_padding_and_cropping_did_is_done(stretched):
    image = random_images(1, 28, 28, 1)[0]
    whole = ImageShape(40, 40, 1, 10)
    padded = np.zeros((40, 40, 1), np.float32)
    padded[6:34, 6:34] = image.astype("float32") / 255
    found = fit(image, whole, WHOLE, stretched, pad=6)
    np.testing.assert_array_equal(found, padded)
    again = fit(np.uint8(255 * padded + 0.5), whole, WHOLE, stretched, pad=6)
    if stretched:  # as the training's images of that size were
        assert again[:6].max() == 0 < again[6:34].max()
    else:  # it was done
        np.testing.assert_allclose(again, padded, atol=1e-6)
    cropped = fit(image, ImageShape(24, 24, 1, 10), WHOLE, stretched, 0, True)
    np.testing.assert_array_equal(cropped, padded[8:32, 8:32])
