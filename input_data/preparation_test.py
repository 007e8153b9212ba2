import numpy as np
import pytest
import tensorflow as tf

from input_data.keys import ImageShape
from input_data.preparation import center, center_of_mass, prepare_image, resize
from input_data.transforms import enlarge
from testing.splits import resolved
from testing.tiny_files import random_images


@pytest.mark.parametrize(("height", "width"), [(64, 48), (48, 64), (64, 64)])
def test_fit_pads_to_a_square_and_shrinks(height, width):
    (image,) = random_images(1, height, width, 1)
    fitted = prepare_image(image, ImageShape(16, 16, 1, 10), resolved())
    assert fitted.dtype == np.float32
    small = tf.image.resize(image, (height // 4, width // 4), antialias=True)
    top, left = (64 - height) // 8, (64 - width) // 8
    expected = np.pad(small / 255, ((top, top), (left, left), (0, 0)))
    np.testing.assert_allclose(fitted, expected, atol=1 / 255)


def test_resizing_pads_crops_or_stretches():
    for shape, size, bright in (
        ((10, 10), (6, 9), np.s_[:, 2:8]),
        ((10, 20), (6, 9), np.s_[1:5]),
        ((1, 10), (8, 8), np.s_[4:5]),
    ):
        image = np.full((*shape, 1), 100, np.uint8)
        padded = np.zeros((*size, 1), np.uint8)
        padded[bright] = 100
        np.testing.assert_array_equal(resize(image, size, "pad"), padded)
        for method in "stretch", "crop":
            assert (resize(image, size, method) == 100).all()


def test_a_crop_is_central_and_keeps_proportions():
    (image,) = random_images(1, 12, 30, 3)
    expected = resize(image[:, 9:21], (5, 5))
    cropped = resize(image, (5, 5), "crop")
    # The outermost columns also depend on pixels beside the part.
    np.testing.assert_array_equal(cropped[:, 1:4], expected[:, 1:4])


def test_fit_crops_and_standardizes_photographs():
    for name, border, crop, depth, network_depth in (
        ("cifar10", 4, 24, 3, 3),
        ("norb", 8, 32, 1, 2),
    ):
        size = crop + 2 * border
        (image,) = random_images(1, size, size, depth)
        middle = image[border:-border, border:-border]
        expected = (middle - middle.mean()) / middle.std()
        expected = np.broadcast_to(expected, (crop, crop, network_depth))
        shape = ImageShape(crop, crop, network_depth, 10)
        fitted = prepare_image(image, shape, resolved(name))
        np.testing.assert_allclose(fitted, expected, atol=1e-5)


@pytest.mark.parametrize("method", ["stretch", "pad", "crop", None])
def test_fit_pads_and_crops_as_training_did(method):
    image = random_images(1, 28, 28, 1)[0]
    padded = np.zeros((40, 40, 1), np.float32)
    padded[6:34, 6:34] = image.astype("float32") / 255
    resized = {"image_size": 28, "resize": method} if method else {}
    config = resolved("images", pad=6, **resized)
    fitted = prepare_image(image, ImageShape(40, 40, 1, 10), config)
    np.testing.assert_array_equal(fitted, padded)
    config = resolved("images", distort=True, **resized)
    cropped = prepare_image(image, ImageShape(24, 24, 1, 10), config)
    np.testing.assert_array_equal(cropped, padded[8:32, 8:32])


def stroke(size, rows, columns):
    ink = np.zeros((size, size), np.uint8)
    ink[rows, columns] = 255
    return ink


def test_center_scales_the_longer_side_to_20_pixels():
    for rows, columns, expected in (
        (slice(10, 210), slice(200, 240), (20, 4)),
        (slice(0, 3), slice(5, 35), (2, 20)),
        (slice(70, 71), slice(70, 71), (20, 20)),
    ):
        image = center(stroke(280, rows, columns), (28, 28))
        assert image.shape == (28, 28, 1)
        extents = tuple(image.any(axis=axis).sum() for axis in ((1, 2), (0, 2)))
        assert extents == expected
        mass = center_of_mass(image[..., 0])
        np.testing.assert_allclose(mass, 14, atol=0.51)


def test_center_moves_the_center_of_mass_not_that_of_the_box():
    ink = stroke(100, slice(0, 100), slice(0, 20))
    ink[80:, :60] = 255
    image = center(ink, (28, 28))[..., 0].astype(float)
    rows, columns = np.indices((28, 28)) + 0.5
    mass = [(axis * image).sum() / image.sum() for axis in (rows, columns)]
    np.testing.assert_allclose(mass, 14, atol=0.51)
    np.testing.assert_allclose(center_of_mass(image), mass)
    rows, columns = np.nonzero(image)
    assert rows.min() + rows.max() + 1 < 26
    assert columns.min() + columns.max() + 1 > 30


def test_center_of_offset_digits_and_of_nothing():
    ink = stroke(100, slice(0, 100), slice(0, 100))
    image = center(ink, (36, 40), offset=(4, -3))
    np.testing.assert_allclose(center_of_mass(image[..., 0]), [22, 17])
    image = center(ink, (36, 40), offset=(50, -50))
    np.testing.assert_allclose(center_of_mass(image[..., 0]), [26, 10])
    assert (center(stroke(9, slice(2, 9), slice(2, 9)), (8, 8)) == 255).all()
    # The center of nothing is black.
    dots = np.zeros((280, 280), np.uint8)
    assert not center(dots, (28, 28)).any()
    dots[0, 0] = dots[-1, -1] = 255  # too small to stay
    assert not center(dots, (28, 28)).any()


def test_center_makes_digits_like_the_embedded_ones():
    digit = np.zeros((8, 8), np.uint8)
    digit[:, 2:6] = 255
    digit[3:5, 2:5] = 0
    ink = np.kron(digit, np.ones((4, 4), np.uint8))
    image = center(ink, (36, 40), (-3, 2), digit_size=8)
    expected = np.rint(enlarge(digit[..., None]))
    np.testing.assert_array_equal(image[5:25, 12:32], expected)
    assert image.any(axis=(1, 2)).sum() == 20


@pytest.mark.parametrize("size", [28, 400])
def test_specks_move_no_digit(size):
    rows, columns = slice(size // 4, size // 2), slice(size // 4, size - 9)
    clean = stroke(size, rows, columns)
    dusty = clean.copy()
    dusty[1:3, 1:3] = dusty[-2, -2] = 255
    expected = center(clean, (28, 28))
    np.testing.assert_array_equal(center(dusty, (28, 28)), expected)
    # A second stroke of the digit stays.
    dusty[-4:, :] = 255
    assert (center(dusty, (28, 28)) != expected).any()


@pytest.mark.parametrize("method", ["pad", "crop", "stretch"])
def test_channels_are_resized_independently(method):
    image = random_images(31, 47, 3)
    channels = [resize(image[..., c, None], (16, 20), method) for c in range(3)]
    expected = np.concatenate(channels, axis=-1)
    np.testing.assert_array_equal(resize(image, (16, 20), method), expected)
