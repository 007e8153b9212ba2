import numpy as np
import tensorflow as tf

from input_data.transforms import photo_distortion
from testing.distribution_checks import check_uniform

COUNT = 4000
SEED = tf.constant([3, 5], tf.int64)
OTHER_SEED = tf.constant([3, 6], tf.int64)


def numbered_pixels(count, height, width):
    """float32 [count, height, width, 1]: each pixel is its own number."""
    image = np.arange(height * width, dtype=np.float32)
    return np.tile(image.reshape(1, height, width, 1), (count, 1, 1, 1))


def test_random_crops_come_from_every_place_equally():
    images = numbered_pixels(COUNT, 6, 7)
    crops = photo_distortion.random_crop(images, (4, 4), SEED).numpy()
    assert crops.shape == (COUNT, 4, 4, 1)
    corners = crops[:, 0, 0, 0].astype(int)
    rows, columns = np.divmod(corners, 7)
    counts = np.zeros((3, 4), int)
    np.add.at(counts, (rows, columns), 1)
    assert counts.sum() == COUNT
    # Each of the 12 places: 333 expected, standard deviation 17.5.
    assert abs(counts - COUNT / 12).max() < 5 * 17.5
    for crop, row, column in zip(crops[:50], rows, columns, strict=False):
        np.testing.assert_array_equal(
            crop, images[0, row : row + 4, column : column + 4]
        )


def test_central_crop_is_the_middle():
    crop = photo_distortion.central_crop(numbered_pixels(1, 6, 8), (4, 4))
    expected = numbered_pixels(1, 6, 8)[:, 1:5, 2:6]
    np.testing.assert_array_equal(crop, expected)


def test_flips_half_of_the_images_left_to_right():
    images = numbered_pixels(COUNT, 2, 3)
    flipped = photo_distortion.random_flip(images, SEED).numpy()
    is_flipped = (flipped == images[:, :, ::-1]).all(axis=(1, 2, 3))
    is_same = (flipped == images).all(axis=(1, 2, 3))
    assert (is_flipped ^ is_same).all()
    # Standard deviation of the count: 31.6.
    assert abs(is_flipped.sum() - COUNT / 2) < 5 * 31.6


def test_brightness_adds_one_uniform_number_to_each_image():
    images = np.random.default_rng(0).uniform(0, 255, (COUNT, 2, 3, 2))
    images = images.astype(np.float32)
    added = photo_distortion.random_brightness(images, 63.0, SEED) - images
    added = added.numpy().reshape(COUNT, -1)
    np.testing.assert_allclose(added, added[:, :1].repeat(12, 1), atol=1e-4)
    check_uniform(added[:, 0], -63.0, 63.0)


def test_contrast_scales_each_channel_about_its_mean():
    images = np.random.default_rng(0).uniform(0, 255, (COUNT, 4, 5, 2))
    images = images.astype(np.float32)
    result = photo_distortion.random_contrast(images, 0.2, 1.8, SEED).numpy()
    factors = np.empty(COUNT)
    for number, (image, changed) in enumerate(zip(images, result, strict=True)):
        for channel in range(2):
            before = image[..., channel] - image[..., channel].mean()
            after = changed[..., channel] - image[..., channel].mean()
            factors[number] = after[0, 0] / before[0, 0]
            np.testing.assert_allclose(
                after, before * factors[number], atol=0.1
            )
    check_uniform(factors, 0.2, 1.8)


def test_draws_repeat_with_the_seed_and_differ_without():
    images = numbered_pixels(100, 6, 6)
    for distort in (
        lambda seed: photo_distortion.random_crop(images, (3, 3), seed),
        lambda seed: photo_distortion.random_flip(images, seed),
        lambda seed: photo_distortion.random_brightness(images, 63.0, seed),
        lambda seed: photo_distortion.random_contrast(images, 0.2, 1.8, seed),
    ):
        first = distort(SEED).numpy()
        np.testing.assert_array_equal(first, distort(SEED))
        assert not np.array_equal(first, distort(OTHER_SEED))
