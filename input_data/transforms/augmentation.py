"""Efficient-CapsNet's augmentation: turned, moved, squeezed, partly erased.

Source: the authors' code for MNIST (Mazzia, Salvetti, Chiaberge 2021). Every
amount is the size of a normal number of deviation 0.33, cut at 1, so that
small changes are frequent.
"""

import math

import tensorflow as tf

from input_data.randomness import Stream, step_seed
from input_data.transforms.distortion import rotate

MAX_ANGLE = math.radians(30)
# The largest share of the width by which an image is squeezed.
MAX_SQUEEZE = 0.25
ERASED = 4
# The first pixel of the erased square stays so many off all borders.
_MARGIN = 4
_DEVIATION = 0.33
_LARGEST = 0.9999
# Lobes of the Lanczos kernel on each side.
_LOBES = 3


def augment(images, seed, step):
    """Varies each image in its own way, fixed by the seed and the step.

    One half of the images, at random, is turned. Then each is moved along
    both axes, as far as its margins without any bright pixel allow, squeezed
    in width, and a square of 4x4 pixels becomes black.

    Args:
      images: uint8 [B, H, W, C].
      seed: int, the user's.
      step: scalar int64 tensor.

    Returns:
      uint8 [B, H, W, C].
    """
    seeds = tf.random.experimental.stateless_split(
        step_seed(seed, Stream.AUGMENTATION, step), 4
    )
    varied = tf.cast(images, tf.float32)
    varied = _turn_half(varied, seeds[0])
    varied = _move_within_margins(varied, seeds[1])
    varied = _squeeze_at_random(varied, seeds[2])
    varied = _erase_square(varied, seeds[3])
    return tf.saturate_cast(tf.round(varied), tf.uint8)


def _signed_amounts(images, seed):
    """Two for each image, float32 [B, 2] in (-1, 1)."""
    drawn = tf.random.stateless_normal(
        (tf.shape(images)[0], 2), seed, stddev=_DEVIATION
    )
    return tf.clip_by_value(drawn, -_LARGEST, _LARGEST)


def _turn_half(images, seed):
    amounts = _signed_amounts(images, seed)
    angles = tf.where(amounts[:, 1] > 0, 0.0, amounts[:, 0] * MAX_ANGLE)
    return rotate(images, angles, "BILINEAR")


def _move_within_margins(images, seed):
    amounts = _signed_amounts(images, seed)
    for axis in (1, 2):
        offsets = _offsets(images, axis, amounts[:, axis - 1])
        size = images.shape[axis]
        # Only what is black goes over the border, and comes in there.
        places = (tf.range(size) - offsets[:, None]) % size
        images = tf.gather(images, places, axis=axis, batch_dims=1)
    return images


def _offsets(images, axis, amounts):
    """How far along an axis each image moves: int32 [B].

    The sign of an amount is the direction, its size a share of the margin.
    """
    bright = tf.reduce_any(images > 0, axis=(3 - axis, 3))  # [B, H or W]
    bright = tf.cast(bright, tf.int32)
    before = tf.argmax(bright, axis=1, output_type=tf.int32)
    after = tf.argmax(bright[:, ::-1], axis=1, output_type=tf.int32)
    margins = tf.where(amounts < 0, before, after)
    steps = tf.floor(tf.abs(amounts) * tf.cast(margins + 1, tf.float32))
    return tf.cast(tf.sign(amounts) * steps, tf.int32)


def _squeeze_at_random(images, seed):
    width = images.shape[2]
    amounts = tf.abs(_signed_amounts(images, seed))
    taken = tf.cast(tf.floor(amounts[:, 0] * MAX_SQUEEZE * width), tf.int32)
    taken = tf.minimum(taken + 1, width - 1)
    left = taken // 2 + tf.cast(amounts[:, 1] >= 0.5, tf.int32)
    return squeeze(images, width - taken, tf.minimum(left, taken))


def squeeze(images, widths, left):
    """Resizes each image to a width of its own, black on both sides.

    Args:
      images: float32 [B, H, W, C].
      widths: int32 [B], from 1 to W.
      left: int32 [B], columns that are black before it.

    Returns:
      float32 [B, H, W, C], by the Lanczos kernel, which may leave [0, 255].
    """
    width = images.shape[2]
    columns = tf.range(width) - left[:, None]  # [B, W]
    scale = width / tf.cast(widths, tf.float32)[:, None, None]
    # Where each column comes from, in columns of the input.
    centres = (tf.cast(columns, tf.float32)[..., None] + 0.5) * scale
    distances = (tf.range(width, dtype=tf.float32) + 0.5 - centres) / scale
    weights = _lanczos(distances)  # [B, W of the output, W of the input]
    weights /= tf.reduce_sum(weights, axis=-1, keepdims=True)
    inside = (columns >= 0) & (columns < widths[:, None])
    weights = tf.where(inside[..., None], weights, 0.0)
    return tf.einsum("bhwc,bow->bhoc", images, weights)


def _lanczos(distances):
    angles = math.pi * distances
    near = tf.abs(angles) < 1e-4
    safe = tf.where(near, 1.0, angles)
    kernel = _LOBES * tf.sin(safe) * tf.sin(safe / _LOBES) / safe**2
    kernel = tf.where(near, 1.0, kernel)
    return tf.where(tf.abs(distances) < _LOBES, kernel, 0.0)


def _erase_square(images, seed):
    _, height, width, _ = images.shape
    draws = tf.random.stateless_uniform((tf.shape(images)[0], 2), seed)

    def covered(size, draw):
        places = max(size - 2 * _MARGIN - 1, 1)
        first = _MARGIN + tf.cast(tf.floor(draw * places), tf.int32)
        distance = tf.range(size) - first[:, None]
        return (distance >= 0) & (distance < ERASED)

    rows, columns = covered(height, draws[:, 0]), covered(width, draws[:, 1])
    erased = rows[:, :, None, None] & columns[:, None, :, None]
    return tf.where(erased, 0.0, images)
