"""Pads, shifts, crops and rotates batches of images [B, H, W, C]."""

import tensorflow as tf

CROP = 4  # pixels that `distort` removes along each axis
DIGIT_SIZE = 20  # pixels of the longer side of a digit in MNIST


def pad_images(images, pad):
    """Adds `pad` black pixels on each side of every image."""
    return tf.pad(images, [[0, 0], [pad, pad], [pad, pad], [0, 0]])


def shift_images(images, offsets, max_shift):
    """Moves each image by `offsets` (down, right), int32 [B, 2], over black."""
    padded = pad_images(images, max_shift)
    return crop_at(padded, max_shift - offsets, images.shape[1:3])


def crop_at(images, starts, size):
    """Cuts `size` out of each image from its `starts`, int32 [B, 2]."""
    rows = starts[:, :1] + tf.range(size[0])  # [B, height]
    columns = starts[:, 1:] + tf.range(size[1])  # [B, width]
    parts = tf.gather(images, rows, axis=1, batch_dims=1)
    return tf.gather(parts, columns, axis=2, batch_dims=1)


def central_crop(images, size, offset=(0, 0)):
    """Crops the center to `size`; `offset` moves the crop (down, right)."""
    _, height, width, _ = images.shape
    top = (height - size[0]) // 2 + offset[0]
    left = (width - size[1]) // 2 + offset[1]
    return images[:, top : top + size[0], left : left + size[1]]


def rotate(images, angles, interpolation="NEAREST"):
    """Rotates each image about its center and fills with black.

    Angles are float32 [B], in radians, counter-clockwise. The interpolation is
    "NEAREST" (as in tf.contrib.image.rotate of the reference) or "BILINEAR".
    """
    _, height, width, _ = images.shape
    sine, cosine, zero = tf.sin(angles), tf.cos(angles), tf.zeros_like(angles)
    middle_x, middle_y = (width - 1) / 2, (height - 1) / 2
    # The output pixel (x, y) comes from the input at
    #   (cosine * x - sine * y + shift_x, sine * x + cosine * y + shift_y).
    shift_x = middle_x - cosine * middle_x + sine * middle_y
    shift_y = middle_y - sine * middle_x - cosine * middle_y
    transforms = [cosine, -sine, shift_x, sine, cosine, shift_y, zero, zero]
    transforms = tf.stack(transforms, axis=1)  # [B, 8]
    return project(images, transforms, (height, width), interpolation)


def project(images, transforms, size, interpolation, fill_mode="CONSTANT"):
    """Applies a projective transformation to each image.

    The output has `size` (height, width). Its pixel (x, y) is the input pixel
    ((a x + b y + c) / k, (d x + e y + f) / k), where k = g x + h y + 1 and
    `transforms`, float32 [B, 8], has a to h. With `fill_mode` "CONSTANT",
    pixels from outside the input are black.
    """
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=images,
        transforms=transforms,
        output_shape=size,
        fill_value=0.0,
        interpolation=interpolation,
        fill_mode=fill_mode,
    )


def unit_range(images):
    """Converts uint8 pixels to float32 in [0, 1]."""
    return tf.cast(images, tf.float32) / 255.0


def enlarge(images):
    """Enlarges images [..., h, w, C] to 20x20 pixels; returns float32."""
    with tf.device("CPU:0"):
        return tf.image.resize(images, (DIGIT_SIZE, DIGIT_SIZE)).numpy()
