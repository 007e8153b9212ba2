"""Padding and shifting whole batches of images."""

import tensorflow as tf

from common.errors import UserError


def require_possible_shift(shift, pad, size):
    """Refuses shifts by which more than half of an image may go.

    Args:
      shift: int, pixels.
      pad: int, pixels added before.
      size: (height, width) of the images as they are stored.

    Raises:
      UserError: if it is one.
    """
    largest = pad + min(size) // 2
    if shift > largest:
        raise UserError(
            f"--shift={shift} moves images of {size[0]}x{size[1]}, padded by "
            f"{pad} pixels, out of sight: it may be at most {largest}"
        )


def shift_images(images, offsets, max_shift):
    """Moves each image by its own offset; what comes in is black.

    out[b, y, x] = images[b, y - offsets[b, 0], x - offsets[b, 1]]

    Args:
      images: tensor [B, H, W, C].
      offsets: int32 tensor [B, 2], rows down and columns right, in pixels.
      max_shift: int, at least the largest absolute offset.

    Returns:
      Tensor of the shape and type of `images`.
    """
    _, height, width, _ = images.shape
    padded = pad_images(images, max_shift)
    rows = tf.range(height) + max_shift - offsets[:, :1]  # [B, H]
    columns = tf.range(width) + max_shift - offsets[:, 1:]  # [B, W]
    shifted = tf.gather(padded, rows, axis=1, batch_dims=1)
    return tf.gather(shifted, columns, axis=2, batch_dims=1)


def pad_images(images, pad):
    """Adds `pad` black pixels on each side of images [B, H, W, C]."""
    return tf.pad(images, [[0, 0], [pad, pad], [pad, pad], [0, 0]])


def unit_range(images):
    """uint8 pixels as float32 in [0, 1]."""
    return tf.cast(images, tf.float32) / 255.0
