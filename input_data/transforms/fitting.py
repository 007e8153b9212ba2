"""Fits images of any size to a network, as its evaluation would see them."""

import numpy as np
import tensorflow as tf

from input_data.transforms.distortion import CROP, crop_middle
from input_data.transforms.resizing import resize
from input_data.transforms.shifting import pad_images, unit_range


def fit(image, shape, data_set, stretched=False, pad=0, cropped=False):
    """An image as the network takes it.

    It keeps its proportions: it is resized to the largest size that fits and
    padded with black on two sides. What has the network's size already is left
    as it is, unless images of the training were resized. For a network that
    was trained on crops of photographs (cifar10, norb), it takes the place of
    the photograph, of which the middle is cut out and standardised.

    Args:
      image: uint8 array [H, W, 1 or 3]. A network of another depth, such as
        norb's two views, gets the one channel as each of its own.
      shape: `features.ImageShape` of the network.
      data_set: `DataSet` that the network was trained on.
      stretched: bool, whether the images of the training were resized to a
        given size without regard to their proportions. So is this one then.
      pad: int, black pixels that they then got on each side.
      cropped: bool, whether their middle was cut out of that (`distort`).

    Returns:
      float32 array [height, width, depth] of `shape`.
    """
    if image.shape[-1] == 1:
        image = np.repeat(image, shape.depth, axis=-1)
    size = (shape.height, shape.width)
    with tf.device("CPU:0"):
        if data_set.photograph_size is None:
            if stretched or image.shape[:2] != size:
                image = _prepared(image, size, stretched, pad, cropped)
            return unit_range(image).numpy()
        photograph = pad_to_proportions(image, data_set.photograph_size)
        crop = tf.image.resize_with_crop_or_pad(photograph, *size)
        standardised = tf.image.per_image_standardization(
            tf.cast(crop, tf.float32)
        )
        return standardised.numpy()


def _prepared(image, size, stretched, pad, cropped):
    """An image resized, padded and cropped to a size."""
    resized = size_before(size, pad, cropped)
    change = resize if stretched else pad_to_proportions
    images = pad_images(change(image, resized)[None], pad)
    return (crop_middle(images) if cropped else images)[0]


def size_before(size, pad, cropped):
    """What is padded and then cropped to a size, as `fit` does it."""
    return tuple(side + CROP * cropped - 2 * pad for side in size)


def pad_to_proportions(image, size):
    """Resizes an image uint8 [H, W, C] to a size, with black on two sides.

    As if padded first and resized then, up to the softness of the edge; but
    an image a thousand times wider than high takes no more memory than others.

    Args:
      image: uint8 array [H, W, C].
      size: (height, width), in pixels.

    Returns:
      uint8 array [height, width, C].
    """
    scale = min(size[0] / image.shape[0], size[1] / image.shape[1])
    inner = [max(1, round(side * scale)) for side in image.shape[:2]]
    borders = []
    for whole, part in zip(size, inner, strict=True):
        before = (whole - part) // 2
        borders.append((before, whole - part - before))
    return np.pad(resize(image, inner), (*borders, (0, 0)))
