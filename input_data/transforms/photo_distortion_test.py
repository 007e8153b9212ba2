import numpy as np
import tensorflow as tf

from input_data.transforms import photo_distortion

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


def test_draws_differ_with_the_seed():
    images = numbered_pixels(100, 6, 6)
    for distort in (
        lambda seed: photo_distortion.random_crop(images, (3, 3), seed),
        lambda seed: photo_distortion.random_flip(images, seed),
        lambda seed: photo_distortion.random_brightness(images, 63.0, seed),
        lambda seed: photo_distortion.random_contrast(images, 0.2, 1.8, seed),
    ):
        assert not np.array_equal(distort(SEED), distort(OTHER_SEED))
