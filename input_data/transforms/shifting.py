"""Padding and shifting whole batches of images."""

import tensorflow as tf

from old.errors import UserError


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
    padded = pad_images(images, max_shift)
    return cut_out(padded, max_shift - offsets, images.shape[1:3])


def cut_out(images, starts, size):
    """A part of each image, from a place of its own.

    Args:
      images: tensor [B, H, W, C].
      starts: int32 tensor [B, 2], the first row and the first column.
      size: pair of int, height and width of the parts.

    Returns:
      Tensor [B, *size, C] of the type of `images`.
    """
    rows = starts[:, :1] + tf.range(size[0])  # [B, height]
    columns = starts[:, 1:] + tf.range(size[1])  # [B, width]
    parts = tf.gather(images, rows, axis=1, batch_dims=1)
    return tf.gather(parts, columns, axis=2, batch_dims=1)


def pad_images(images, pad):
    """Adds `pad` black pixels on each side of images [B, H, W, C]."""
    return tf.pad(images, [[0, 0], [pad, pad], [pad, pad], [0, 0]])


def unit_range(images):
    """uint8 pixels as float32 in [0, 1]."""
    return tf.cast(images, tf.float32) / 255.0
