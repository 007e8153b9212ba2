"""Crops and distorts whole batches of images, each image by its own draw."""

import tensorflow as tf

from input_data.transforms.shifting import cut_out


def random_crop(images, size, seed):
    """Cuts a part out of each image, every place equally likely.

    Args:
      images: tensor [B, H, W, C].
      size: pair of int, height and width of the crop.
      seed: int64 tensor [2].

    Returns:
      Tensor [B, *size, C] of the type of `images`.
    """
    sides = images.shape[1:3]
    batch_size = tf.shape(images)[0]
    starts = [
        tf.random.stateless_uniform(
            (batch_size, 1),
            seed + axis,
            0,
            sides[axis] - size[axis] + 1,
            tf.int32,
        )
        for axis in (0, 1)
    ]
    return cut_out(images, tf.concat(starts, axis=1), size)


def central_crop(images, size, offset=(0, 0)):
    """The middle of images [B, H, W, C], of the height and width `size`.

    Args:
      images: tensor.
      size: pair of int.
      offset: pair of int, pixels by which the part is moved down and right.
    """
    _, height, width, _ = images.shape
    top = (height - size[0]) // 2 + offset[0]
    left = (width - size[1]) // 2 + offset[1]
    return images[:, top : top + size[0], left : left + size[1]]


def random_flip(images, seed):
    """Mirrors each image left to right, or not, with equal probability."""
    flipped = _uniform(images, seed, 0.0, 1.0) < 0.5
    return tf.where(flipped, images[:, :, ::-1], images)


def random_brightness(images, max_delta, seed):
    """Adds to each image one number, uniform in [-max_delta, max_delta).

    Args:
      images: float32 tensor [B, H, W, C].
      max_delta: float, in the unit of the pixels.
      seed: int64 tensor [2].
    """
    return images + _uniform(images, seed, -max_delta, max_delta)


def random_contrast(images, lower, upper, seed):
    """Scales each channel of an image about its mean, all by one factor.

    Args:
      images: float32 tensor [B, H, W, C].
      lower: float, the least factor.
      upper: float, the largest.
      seed: int64 tensor [2].
    """
    mean = tf.reduce_mean(images, axis=(1, 2), keepdims=True)
    return (images - mean) * _uniform(images, seed, lower, upper) + mean


def _uniform(images, seed, low, high):
    """One number [B, 1, 1, 1] for each image, uniform in [low, high)."""
    shape = (tf.shape(images)[0], 1, 1, 1)
    return tf.random.stateless_uniform(shape, seed, low, high)
