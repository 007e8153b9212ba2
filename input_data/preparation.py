"""Resizes images, and prepares images of any size for a network."""

import numpy as np
import scipy.ndimage
import tensorflow as tf
from PIL import Image, ImageOps

from input_data import transforms
from input_data.registry import find_data_set
from input_data.transforms import DIGIT_SIZE, enlarge

SPECK_SHARE = 0.05  # of the largest piece's area, see `center`

_RESIZING = {
    "pad": ImageOps.pad,
    "crop": ImageOps.fit,
    "stretch": Image.Image.resize,
}


def resize(image, size, method="stretch"):
    """Resizes uint8 [H, W, C] to [*size, C] bilinearly, with antialiasing.

    The methods "pad" (with black) and "crop" keep the proportions, "stretch"
    changes them. Raises ValueError if "pad" would leave less than a pixel.
    """
    scale = min(size[0] / image.shape[0], size[1] / image.shape[1])
    if method == "pad" and round(scale * min(image.shape[:2])) == 0:
        raise ValueError("the image is too thin to resize")
    options = size[::-1], Image.Resampling.BILINEAR
    channels = map(Image.fromarray, np.moveaxis(image, -1, 0))
    resized = [_RESIZING[method](channel, *options) for channel in channels]
    return np.stack(resized, axis=-1)


def prepare_image(image, shape, config):
    """Prepares an image of any size as evaluation prepares test images.

    If training images were resized (`image_size`), the image is resized in the
    same way. Otherwise it is resized to fit the network's size or the data
    set's `photograph_size` and padded with black. A photograph is then cropped
    to its center and standardized. Takes uint8 [H, W, 1 or 3], the network's
    `keys.ImageShape` and a `Config`. Returns float32 [height, width, depth].
    """
    if image.shape[-1] == 1:
        image = np.repeat(image, shape.depth, axis=-1)
    size = (shape.height, shape.width)
    photograph_size = find_data_set(config.dataset).photograph_size
    # The two objects of an image were padded before they were merged.
    pad = 0 if config.num_targets == 2 else config.pad
    method = config.image_size and config.resize
    with tf.device("CPU:0"):
        if photograph_size is not None:
            photograph = resize(image, photograph_size, "pad")
            crop = transforms.central_crop(photograph[None], size)[0]
            crop = tf.cast(crop, tf.float32)
            return tf.image.per_image_standardization(crop).numpy()
        if method or image.shape[:2] != size:
            # The size before padding and cropping.
            border = 2 * pad - transforms.CROP * config.distort
            before = [side - border for side in size]
            image = resize(image, before, method or "pad")
            padded = transforms.pad_images(image[None], pad)
            image = transforms.central_crop(padded, size)[0]
        return transforms.unit_range(image).numpy()


def center(ink, size, offset=(0, 0), digit_size=DIGIT_SIZE):
    """Scales and centers a drawn digit as MNIST does.

    MNIST (http://yann.lecun.com/exdb/mnist) scales each digit to fit into
    20x20 pixels and moves its center of mass to the center of the image.
    `offset` (rows, columns) moves it further, but not out of the image. A
    `digit_size` n below 20 imitates the data set `digits`: the digit is fitted
    into n x n pixels, which are enlarged to 20x20 and centered. Specks do not
    count. Takes uint8 [H, W], where 0 is no ink; returns uint8 [*size, 1].
    """
    canvas = np.zeros((*size, 1), np.uint8)
    pieces, _ = scipy.ndimage.label(ink > 0, np.ones((3, 3)))
    areas = np.bincount(pieces.flat)
    areas[0] = 0  # of the background
    ink = ink * (areas >= SPECK_SHARE * areas.max())[pieces]
    boxes = scipy.ndimage.find_objects((ink > 0).astype(np.int8))
    if not boxes:
        return canvas
    digit = ink[boxes[0]]
    is_coarse = digit_size < DIGIT_SIZE
    longer = 4 * digit_size if is_coarse else min(DIGIT_SIZE, *size)
    scale = longer / max(digit.shape)
    height, width = (max(1, round(side * scale)) for side in digit.shape)
    digit = resize(digit[..., None], (height, width))
    if is_coarse:  # as the embedded digits were made, count ink in 4x4 pixels
        padded = tf.image.resize_with_crop_or_pad(digit, longer, longer)
        bits = padded.numpy()[..., 0] > 64
        if bits.mean() < 0.2:  # their strokes are thicker
            bits = scipy.ndimage.binary_dilation(bits)
        cells = bits.reshape(digit_size, 4, digit_size, 4).mean((1, 3))
        digit = np.rint(enlarge(255 * cells[..., None])).astype(np.uint8)
    if digit.any():  # single pixels of a large drawing may vanish
        middle = DIGIT_SIZE / 2 if is_coarse else center_of_mass(digit[..., 0])
        start = np.array(size) / 2 + offset - middle
        height, width, _ = digit.shape
        largest = np.subtract(size, (height, width))
        top, left = np.clip(np.rint(start), 0, largest).astype(int)
        canvas[top : top + height, left : left + width] = digit
    return canvas


def edge(image):
    """The outermost pixels [N, ...] of an image [H, W, ...]."""
    return np.concatenate([image[0], image[-1], image[:, 0], image[:, -1]])


def remove_background(ink):
    """Scales uint8 [H, W] from the edge's median; drops paper and shadows."""
    darkest = np.median(edge(ink))
    ink = (ink - darkest) / max(1, ink.max() - darkest)
    return np.rint(255 * np.where(ink > 0.5, ink, 0)).astype(np.uint8)


def center_of_mass(ink):
    """The center of mass (row, column); the upper left corner is (0, 0)."""
    return np.add(scipy.ndimage.center_of_mass(ink), 0.5)
