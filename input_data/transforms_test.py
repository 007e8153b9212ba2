import math

import numpy as np
import scipy.ndimage
import tensorflow as tf

from input_data.transforms import rotate, shift_images
from testing.tiny_files import random_images


def test_shift_equals_scipy():
    images = random_images(4, 6, 7, 2)
    offsets = np.array([[0, 0], [1, -2], [-2, 2], [2, 1]], np.int32)
    shifted = shift_images(tf.constant(images), tf.constant(offsets), 2)
    for image, offset, result in zip(images, offsets, shifted, strict=True):
        expected = scipy.ndimage.shift(image, (*offset, 0), order=0)
        np.testing.assert_array_equal(result, expected)


def rotated_in_loops(image, angle):
    """Each pixel from its nearest neighbor before the rotation."""
    height, width = image.shape
    middle_y, middle_x = (height - 1) / 2, (width - 1) / 2
    sine, cosine = math.sin(angle), math.cos(angle)
    rotated = np.zeros_like(image)
    for y, x in np.ndindex(height, width):
        # Rows count downwards, so that up is -y.
        right, up = x - middle_x, middle_y - y
        source_y = round(middle_y - (up * cosine - right * sine))
        source_x = round(middle_x + right * cosine + up * sine)
        if 0 <= source_y < height and 0 <= source_x < width:
            rotated[y, x] = image[source_y, source_x]
    return rotated


def test_rotation_equals_explicit_loops():
    images = random_images(3, 11, 8, 1)
    angles = np.array([0.2, -0.11, math.radians(15)], np.float32)
    rotated = rotate(tf.constant(images), tf.constant(angles)).numpy()
    for image, angle, result in zip(images, angles, rotated, strict=True):
        expected = rotated_in_loops(image[..., 0], float(angle))
        np.testing.assert_array_equal(result[..., 0], expected)
