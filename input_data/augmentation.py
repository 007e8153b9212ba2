"""Random changes of training images, fixed by a seed.

`augment` is Efficient-CapsNet's augmentation; `distort` and `distort_colors`
follow the reference. Each image has random numbers of its own.
"""

import math

import tensorflow as tf

from input_data.pipeline import Stream, step_seed
from input_data.transforms import CROP, crop_at, project, rotate

# The authors' code of Efficient-CapsNet (Mazzia, Salvetti, Chiaberge 2021).
AUGMENT_ANGLE = math.radians(30)
MAX_SQUEEZE = 0.25  # of the width
ERASED = 4
_MARGIN = 4  # least distance of the erased square from all borders
# Amounts are normally distributed with this deviation, and clipped at 1.
_DEVIATION = 0.33
_LARGEST = 0.9999
_LOBES = 3  # of the Lanczos kernel, on each side

DISTORT_ANGLE = math.radians(15)  # as in the reference
# The reference's distortions of photographs, for pixels of 0 to 255.
BRIGHTNESS_RANGE = (-63.0, 63.0)
CONTRAST_RANGE = (0.2, 1.8)


def random_changes(images, config, seed, step):
    """Crops, flips, augments and distorts uint8 images, as `config` says."""
    if config.crop_area < 1:
        crop_seed = step_seed(seed, Stream.RESIZED_CROP, step)
        images = random_resized_crop(images, config.crop_area, crop_seed)
    if config.flip:
        images = random_flip(images, step_seed(seed, Stream.FLIP, step))
    if config.augment:
        images = augment(images, seed, step)
    if config.distort:
        images = distort(images, seed, step)
    return images


def augment(images, seed, step):
    """Augments uint8 images [B, H, W, C] as Efficient-CapsNet does on MNIST."""
    seed = step_seed(seed, Stream.AUGMENTATION, step)
    seeds = tf.random.experimental.stateless_split(seed, 4)
    images = rotate_half(tf.cast(images, tf.float32), seeds[0])
    images = move_within_margins(images, seeds[1])
    images = squeeze_at_random(images, seeds[2])
    images = erase_square(images, seeds[3])
    return tf.saturate_cast(tf.round(images), tf.uint8)


def _signed_amounts(images, seed):
    """Two numbers for each image, float32 [B, 2] in (-1, 1)."""
    shape = (tf.shape(images)[0], 2)
    draws = tf.random.stateless_normal(shape, seed, stddev=_DEVIATION)
    return tf.clip_by_value(draws, -_LARGEST, _LARGEST)


def rotate_half(images, seed):
    """Rotates about half of the images, each by its own random angle."""
    amounts = _signed_amounts(images, seed)
    angles = tf.where(amounts[:, 1] > 0, 0.0, amounts[:, 0] * AUGMENT_ANGLE)
    return rotate(images, angles, "BILINEAR")


def move_within_margins(images, seed):
    """Moves the content of each image at random within its black margins."""
    amounts = _signed_amounts(images, seed)
    for axis in (1, 2):
        bright = tf.reduce_any(images > 0, axis=(3 - axis, 3))  # [B, H or W]
        before, after = tf.argmax(bright, 1), tf.argmax(bright[:, ::-1], 1)
        amount = amounts[:, axis - 1]
        margin = tf.where(amount < 0, before, after)
        offset = tf.cast(amount * tf.cast(margin + 1, tf.float32), tf.int32)
        # Rolling moves only black pixels from one border to the other.
        size = images.shape[axis]
        places = (tf.range(size) - offset[:, None]) % size
        images = tf.gather(images, places, axis=axis, batch_dims=1)
    return images


def squeeze_at_random(images, seed):
    """Narrows each image by at least 1 pixel and at most W / 4, rounded up."""
    width = images.shape[2]
    amounts = tf.abs(_signed_amounts(images, seed))
    removed = 1 + tf.cast(amounts[:, 0] * MAX_SQUEEZE * width, tf.int32)
    left = removed // 2 + tf.cast(amounts[:, 1] >= 0.5, tf.int32)
    return squeeze(images, width - removed, left)


def squeeze(images, widths, left):
    """Narrows images [B, H, W, C] to `widths` pixels by the Lanczos kernel.

    `widths`, int32 [B], are from 1 to W. Of the black columns that fill up the
    width to W, `left`, int32 [B], are on the left. Results can leave [0, 255].
    """
    width = images.shape[2]
    columns = tf.range(width) - left[:, None]  # [B, W]
    scale = width / tf.cast(widths, tf.float32)[:, None, None]
    centers = (tf.cast(columns, tf.float32)[..., None] + 0.5) * scale
    distances = (tf.range(width, dtype=tf.float32) + 0.5 - centers) / scale
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


def erase_square(images, seed):
    """Sets 4x4 pixels, at a random place in each image, to black."""
    _, height, width, _ = images.shape
    draws = tf.random.stateless_uniform((tf.shape(images)[0], 2), seed)

    def covered(size, draw):
        places = max(size - 2 * _MARGIN - 1, 1)
        first = _MARGIN + tf.cast(draw * places, tf.int32)
        distance = tf.range(size) - first[:, None]
        return (distance >= 0) & (distance < ERASED)

    rows, columns = covered(height, draws[:, 0]), covered(width, draws[:, 1])
    erased = rows[:, :, None, None] & columns[:, None, :, None]
    return tf.where(erased, 0.0, images)


def distort(images, seed, step):
    """Crops uint8 images by 4 pixels at random; rotates up to 15 degrees."""
    _, height, width, _ = images.shape
    crop_seed = step_seed(seed, Stream.CROP, step)
    cropped = random_crop(images, (height - CROP, width - CROP), crop_seed)
    angle_seed = step_seed(seed, Stream.ROTATION, step)
    angles = _uniform(images, angle_seed, -DISTORT_ANGLE, DISTORT_ANGLE)
    return rotate(cropped, angles[:, 0, 0, 0])


def random_crop(images, size, seed):
    """Cuts `size` (height, width) out of each image at a random place."""
    starts = []
    for axis in (0, 1):
        places = images.shape[1 + axis] - size[axis] + 1
        starts.append(_uniform(images, seed + axis, 0, places, tf.int32))
    return crop_at(images, tf.concat(starts, axis=1)[..., 0, 0], size)


def random_resized_crop(images, least_area, seed):
    """Crops uint8 images at random and resizes the crops to the images' size.

    A crop's share of the image's area is uniform in [least_area, 1). A factor,
    log-uniform in [3/4, 4/3] and clipped so that the crop fits, changes the
    aspect ratio. Szegedy et al. (2015) use `least_area` 0.08.
    """
    _, height, width, _ = images.shape
    draws = tf.random.stateless_uniform((4, tf.shape(images)[0]), seed)
    area = least_area + (1 - least_area) * draws[0]
    factor = tf.clip_by_value((4 / 3) ** (2 * draws[1] - 1), area, 1 / area)
    x_scale, y_scale = tf.sqrt(area * factor), tf.sqrt(area / factor)
    left = (1 - x_scale) * (width * draws[2] - 0.5)
    top = (1 - y_scale) * (height * draws[3] - 0.5)
    zero = tf.zeros_like(area)
    crops = [x_scale, zero, left, zero, y_scale, top, zero, zero]
    images, crops = tf.cast(images, tf.float32), tf.stack(crops, axis=1)
    images = project(images, crops, (height, width), "BILINEAR", "NEAREST")
    return tf.saturate_cast(tf.round(images), tf.uint8)


def random_flip(images, seed):
    """Mirrors each image left to right with probability 1/2."""
    return tf.where(_uniform(images, seed) < 0.5, images[:, :, ::-1], images)


def distort_colors(images, step, seed):
    """Changes brightness, then contrast, of float32 images in [0, 255]."""
    brightness_seed = step_seed(seed, Stream.BRIGHTNESS, step)
    images += _uniform(images, brightness_seed, *BRIGHTNESS_RANGE)
    mean = tf.reduce_mean(images, axis=(1, 2), keepdims=True)
    contrast_seed = step_seed(seed, Stream.CONTRAST, step)
    factors = _uniform(images, contrast_seed, *CONTRAST_RANGE)
    return (images - mean) * factors + mean


def _uniform(images, seed, low=0, high=1, dtype=tf.float32):
    """One number in [low, high) for each image, [B, 1, 1, 1]."""
    shape = (tf.shape(images)[0], 1, 1, 1)
    return tf.random.stateless_uniform(shape, seed, low, high, dtype)
