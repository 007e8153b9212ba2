"""Makes affNIST files from MNIST: random affine transformations on 40x40.

The transformations are those of https://www.cs.toronto.edu/~tijmen/affNIST/:
rotation, shear, scales and position are drawn uniformly. Positions keep the
whole digit visible. The official files come from other random numbers.
"""

import pathlib

import numpy as np
import tensorflow as tf

from common.files import make_folder, refuse_existing, remove_partial
from input_data.datasets.affnist import IMAGE_SIZE, file_name, write_file
from input_data.generators.shifted_records import read_digits
from input_data.images import LabeledImages
from input_data.transforms import project

MAX_ROTATION = np.deg2rad(20.0)
MAX_SHEAR = 0.2
SCALE_RANGE = (0.8, 1.2)
_BATCH_SIZE = 1000


def generate(dataset, data_dir, split, output_dir, copies, seed):
    """Writes the affNIST file of a `Split`; `dataset`: "mnist" or "digits"."""
    path = pathlib.Path(output_dir) / file_name(split)
    refuse_existing(path)
    data = read_digits(dataset, split, data_dir)
    remove_partial(make_folder(output_dir), path.name)
    transformed = transform(data, copies, seed)
    write_file(path, transformed)
    print(f"{path}: {len(transformed)} images")


def transform(data, copies, seed):
    """Makes transformed copies of images [N, H, W, 1].

    Returns `LabeledImages` [copies * N, 40, 40, 1]: the first copy of every
    image, then the second copies, and so on.
    """
    generator = np.random.default_rng(seed)
    shape = (IMAGE_SIZE, IMAGE_SIZE, 1)
    images = np.empty((copies, len(data), *shape), np.uint8)
    for copy in images:
        for start in range(0, len(data), _BATCH_SIZE):
            part = slice(start, start + _BATCH_SIZE)
            batch = data.images[part]
            matrices = draw_matrices(generator, len(batch))
            offsets = draw_offsets(generator, batch, matrices)
            copy[part] = warp(batch, matrices, offsets)
    labels = np.tile(data.labels, copies)
    return LabeledImages(images.reshape(-1, *shape), labels, data.num_classes)


def draw_matrices(generator, count):
    """Draws linear maps [count, 2, 2]: rotation @ shear @ scale.

    They map (x, y) in the digit to (x, y) on the canvas: x right, y down.
    """
    angle = generator.uniform(-MAX_ROTATION, MAX_ROTATION, count)
    shear = generator.uniform(-MAX_SHEAR, MAX_SHEAR, count)
    scale = generator.uniform(*SCALE_RANGE, (count, 2))
    cos, sin = np.cos(angle), np.sin(angle)
    # [[cos, -sin], [sin, cos]] @ [[1, shear], [0, 1]] @ diag(scale)
    entries = [cos, cos * shear - sin, sin, sin * shear + cos]
    return np.stack(entries, 1).reshape(-1, 2, 2) * scale[:, np.newaxis]


def draw_offsets(generator, images, matrices):
    """Draws uniform positions that keep all ink on the canvas, float [B, 2].

    An offset is the canvas position (x, y) of the image's pixel (0, 0). Ink
    larger than the canvas is centered.
    """
    _, height, width, _ = images.shape
    y, x = np.mgrid[:height, :width].reshape(2, -1)
    ink = images.reshape(len(images), 1, -1) > 0  # [B, 1, H * W]
    # Without ink, the image's corner stands for it.
    ink[..., 0] |= ~ink.any(axis=-1)
    places = matrices[..., :1] * x + matrices[..., 1:] * y  # [B, 2, H * W]
    # Interpolation spreads a pixel of the image to its neighbors.
    reach = np.abs(matrices).sum(axis=-1)
    first = places.min(axis=-1, where=ink, initial=np.inf) - reach
    last = places.max(axis=-1, where=ink, initial=-np.inf) + reach
    low, high = -1 - first, IMAGE_SIZE - last  # [B, 2]
    middle = (low + high) / 2
    low, high = np.minimum(low, middle), np.maximum(high, middle)
    return generator.uniform(low.T, high.T).T


def warp(images, matrices, offsets):
    """Transforms images onto the canvas with bilinear interpolation.

    The canvas at p has the value of the image at inverse(matrix) @ (p - offset)
    (0 outside). Takes uint8 [B, H, W, 1]; returns uint8 [B, 40, 40, 1].
    """
    inverse = np.linalg.inv(matrices)
    origin = -(inverse @ offsets[..., np.newaxis])  # [B, 2, 1]
    rows = np.concatenate([inverse, origin], axis=2).reshape(-1, 6)
    projections = np.pad(rows, ((0, 0), (0, 2))).astype(np.float32)
    canvas = (IMAGE_SIZE, IMAGE_SIZE)
    with tf.device("CPU:0"):
        images = tf.cast(images, tf.float32)
        warped = project(images, projections, canvas, "BILINEAR")
    return np.rint(warped.numpy()).astype(np.uint8)
