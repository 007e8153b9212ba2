"""Brings images to one size."""

import tensorflow as tf


def resize(image, size):
    """Brings an image uint8 [H, W, C] to (height, width), smoothly.

    Shrinking averages over all pixels (antialiasing). The proportions are
    those of `size`, not of the image.
    """
    resized = tf.image.resize(image, size, antialias=True)
    return tf.cast(tf.round(tf.clip_by_value(resized, 0, 255)), tf.uint8)
