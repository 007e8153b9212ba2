"""The reference's `distort`: cropped digits, in training turned as well."""

import math

import tensorflow as tf

from input_data.randomness import Stream, step_seed
from input_data.transforms.photo_distortion import central_crop, random_crop
from old.errors import UserError

# Pixels that a crop takes off, per axis.
CROP = 4
MAX_ANGLE = math.radians(15)


def distorted_size(height, width):
    """Height and width after a crop.

    Raises:
      UserError: if nothing would be left.
    """
    if min(height, width) <= CROP:
        raise UserError(
            f"--distort takes off {CROP} pixels: images of {height}x{width} "
            "are too small"
        )
    return height - CROP, width - CROP


def distort_for_training(images, seed, step):
    """Crops each image at a random place and turns it by a random angle.

    Unlike the reference, which draws one angle when it starts, each image has
    its own.

    Args:
      images: uint8 [B, H, W, C].
      seed: int, the user's.
      step: scalar int64 tensor.

    Returns:
      uint8 [B, H - 4, W - 4, C].
    """
    size = distorted_size(*images.shape[1:3])
    cropped = random_crop(images, size, step_seed(seed, Stream.CROP, step))
    angles = tf.random.stateless_uniform(
        (tf.shape(images)[0],),
        step_seed(seed, Stream.ROTATION, step),
        -MAX_ANGLE,
        MAX_ANGLE,
    )
    return rotate(cropped, angles)


def crop_middle(images):
    """The middle of images [B, H, W, C]: [B, H - 4, W - 4, C]."""
    return central_crop(images, distorted_size(*images.shape[1:3]))


def rotate(images, angles, interpolation="NEAREST"):
    """Turns each image about its centre; what comes in is black.

    By default pixels are those nearest, as in tf.contrib.image.rotate, which
    the reference calls.

    Args:
      images: uint8 or float32 [B, H, W, C].
      angles: float32 [B], radians, counter-clockwise.
      interpolation: "NEAREST" or "BILINEAR".

    Returns:
      Tensor of the shape and type of `images`.
    """
    _, height, width, _ = images.shape
    sine, cosine = tf.sin(angles), tf.cos(angles)
    zero = tf.zeros_like(angles)
    middle_x, middle_y = (width - 1) / 2, (height - 1) / 2
    # The output pixel (x, y) comes from the input at
    #   (cosine * x - sine * y + shift_x, sine * x + cosine * y + shift_y).
    shift_x = middle_x - cosine * middle_x + sine * middle_y
    shift_y = middle_y - sine * middle_x - cosine * middle_y
    transforms = [
        *(cosine, -sine, shift_x),
        *(sine, cosine, shift_y),
        *(zero, zero),
    ]
    turned = project(
        images, tf.stack(transforms, axis=1), (height, width), interpolation
    )
    return tf.ensure_shape(turned, images.shape)


def project(images, transforms, size, interpolation):
    """Takes every pixel from another place of its image; outside is black.

    Args:
      images: uint8 or float32 [B, H, W, C].
      transforms: float32 [B, 8]: the output pixel (x, y) is the input at
        ((a x + b y + c) / k, (d x + e y + f) / k), where k = g x + h y + 1.
      size: pair of int, height and width of the output.
      interpolation: "NEAREST" or "BILINEAR".

    Returns:
      Tensor [B, *size, C] of the type of `images`.
    """
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=images,
        transforms=transforms,
        output_shape=size,
        fill_value=0.0,
        interpolation=interpolation,
        fill_mode="CONSTANT",
    )
