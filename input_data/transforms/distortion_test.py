import math

import numpy as np
import pytest
import tensorflow as tf

from input_data.transforms.distortion import (
    MAX_ANGLE,
    distort_for_training,
    distorted_size,
    rotate,
)
from old.errors import UserError


def rotated_in_loops(image, angle):
    """Each pixel from the nearest one before turning counter-clockwise."""
    height, width = image.shape
    middle_y, middle_x = (height - 1) / 2, (width - 1) / 2
    turned = np.zeros_like(image)
    for y in range(height):
        for x in range(width):
            # Rows count downwards, so that up is -y.
            right, up = x - middle_x, middle_y - y
            old_right = right * math.cos(-angle) - up * math.sin(-angle)
            old_up = right * math.sin(-angle) + up * math.cos(-angle)
            source_y = round(middle_y - old_up)
            source_x = round(middle_x + old_right)
            if 0 <= source_y < height and 0 <= source_x < width:
                turned[y, x] = image[source_y, source_x]
    return turned


def test_rotation_equals_explicit_loops():
    images = np.random.default_rng(0).integers(
        0, 256, (3, 11, 8, 1), dtype=np.uint8
    )
    angles = np.array([0.2, -0.11, math.radians(15)], np.float32)
    turned = rotate(tf.constant(images), tf.constant(angles)).numpy()
    for image, angle, result in zip(images, angles, turned, strict=True):
        np.testing.assert_array_equal(
            result[..., 0], rotated_in_loops(image[..., 0], float(angle))
        )


def test_quarter_turn_is_counter_clockwise():
    image = np.arange(9, dtype=np.float32).reshape(1, 3, 3, 1)
    turned = rotate(tf.constant(image), tf.constant([math.pi / 2]))
    np.testing.assert_array_equal(turned[0, ..., 0], np.rot90(image[0, ..., 0]))


def test_angles_differ_within_a_batch_and_fill_the_range():
    # A bar through the middle, long enough that every crop keeps its ends.
    size = 104
    bars = np.zeros((400, size, size, 1), np.uint8)
    bars[:, size // 2 - 2 : size // 2 + 2] = 255
    turned = distort_for_training(tf.constant(bars), 3, tf.constant(5, "int64"))
    angles = []
    for image in turned.numpy()[..., 0]:
        ys, xs = np.nonzero(image)
        middle = np.abs(xs - xs.mean()) < 40
        angles.append(-math.atan(np.polyfit(xs[middle], ys[middle], 1)[0]))
    angles = np.array(angles)
    assert len(np.unique(angles.round(4))) > 300
    assert np.abs(angles).max() < MAX_ANGLE + 0.01
    # Uniform in [-15, 15] degrees: mean 0, deviation 15 / sqrt(3).
    assert abs(angles.mean()) < 4 * MAX_ANGLE / math.sqrt(3 * 400)
    assert np.std(angles) == pytest.approx(MAX_ANGLE / math.sqrt(3), rel=0.1)


def test_depends_on_seed_and_step_alone():
    images = tf.constant(
        np.random.default_rng(0).integers(0, 256, (8, 12, 12, 1)), tf.uint8
    )

    def distorted(seed, step):
        return distort_for_training(
            images, seed, tf.constant(step, tf.int64)
        ).numpy()

    np.testing.assert_array_equal(distorted(1, 2), distorted(1, 2))
    assert (distorted(1, 2) != distorted(1, 3)).any()
    assert (distorted(1, 2) != distorted(2, 2)).any()


def test_too_small_images():
    assert distorted_size(28, 30) == (24, 26)
    with pytest.raises(UserError, match="4x9 are too small"):
        distorted_size(4, 9)
