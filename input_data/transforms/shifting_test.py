import numpy as np
import tensorflow as tf

from input_data.transforms.shifting import shift_images


def test_shift_by_hand():
    image = np.zeros((1, 5, 6, 1), "uint8")
    image[0, 2, 3] = 9
    image[0, 0, 0] = 5
    moved = shift_images(
        tf.constant(np.repeat(image, 3, axis=0)),
        tf.constant([[0, 0], [1, -2], [-2, 2]]),
        2,
    ).numpy()[..., 0]
    np.testing.assert_array_equal(moved[0], image[0, ..., 0])
    # (0, 0) leaves the image to the left, then to the top.
    expected = np.zeros((2, 5, 6))
    expected[0, 3, 1] = 9
    expected[1, 0, 5] = 9
    np.testing.assert_array_equal(moved[1:], expected)
