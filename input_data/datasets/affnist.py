"""affNIST: MNIST under random affine transformations, on 40x40 pixels.

Format: https://www.cs.toronto.edu/~tijmen/affNIST/, a struct affNISTdata. Each
column of `image`, uint8 [1600, N], is an image, by rows; `label_int` is [1, N].

`generate` makes such files from MNIST with other random numbers. Rotation,
shear, scales and a position that keeps the digit visible are drawn uniformly.
"""

import pathlib

import numpy as np
import scipy.io
import tensorflow as tf

from common import files
from input_data.files import find_file, open_file
from input_data.images import labeled_images, make_pipeline
from input_data.registry import Split
from input_data.shifted_records import read_digits
from input_data.transforms import project

NUM_CLASSES = 10
IMAGE_SIZE = 40
_STRUCT = "affNISTdata"
# The official names of a .mat file, or of a folder NAME_batches of such files.
_NAMES = {
    Split.TRAIN: "training_and_validation",
    Split.TEST: "test",
    Split.VALID_TRAIN: "training",
    Split.VALID_TEST: "validation",
}
MAX_ROTATION = np.deg2rad(20.0)
MAX_SHEAR = 0.2
SCALE_RANGE = (0.8, 1.2)
_BATCH_SIZE = 1000


def load(split, config):
    """The pipeline of one split, from files with the official names."""
    folder = pathlib.Path(config.data_dir)
    batches = sorted(folder.glob(f"{_NAMES[split]}_batches/*.mat"))
    paths = batches or [find_file(folder, f"{_NAMES[split]}.mat")]
    arrays = zip(*map(_read_file, paths), strict=True)
    # A single array would be copied.
    images, labels = (
        np.concatenate(parts) if batches else parts[0] for parts in arrays
    )
    data = labeled_images(paths[0], images, labels, NUM_CLASSES)
    return make_pipeline(data, config)


def _read_file(path):
    """Images uint8 [N, 40, 40, 1] and labels [N] of a .mat file."""
    with open_file(path) as file:
        fields = scipy.io.loadmat(file)[_STRUCT][0, 0]
        images = fields["image"].T.reshape(-1, IMAGE_SIZE, IMAGE_SIZE, 1)
        return images, fields["label_int"].reshape(-1)


def generate(dataset, data_dir, split, output_dir, copies, seed):
    """Writes affNIST's file of a `Split`: first copies, second ones, ..."""
    path = pathlib.Path(output_dir) / f"{_NAMES[split]}.mat"
    data = read_digits(dataset, split, data_dir)
    files.remove_partial(files.make_folder(output_dir), path.name)
    labels = np.tile(np.asarray(data.labels, np.uint8), copies)
    with files.atomic_write(path) as partial:
        images = _warped_copies(data, copies, seed)
        fields = {
            "image": images.reshape(len(labels), -1).T,
            "label_one_of_n": np.eye(NUM_CLASSES, dtype=np.uint8)[labels].T,
            "label_int": labels[np.newaxis],
        }
        scipy.io.savemat(partial, {_STRUCT: fields})
        # Replaces the time in SciPy's header: equal data give equal files.
        with open(partial, "r+b") as file:
            file.write(b"MATLAB 5.0 MAT-file".ljust(116))
    print(f"{path}: {len(labels)} images")


def _warped_copies(data, copies, seed):
    generator = np.random.default_rng(seed)
    shape = (copies, len(data), IMAGE_SIZE, IMAGE_SIZE, 1)
    images = np.empty(shape, np.uint8)
    for copy in images:
        for start in range(0, len(data), _BATCH_SIZE):
            part = slice(start, start + _BATCH_SIZE)
            batch = data.images[part]
            matrices = draw_matrices(generator, len(batch))
            offsets = draw_offsets(generator, batch, matrices)
            copy[part] = warp(batch, matrices, offsets)
    return images


def draw_matrices(generator, count):
    """Draws linear maps [count, 2, 2] of (x, y): rotation @ shear @ scale."""
    angle = generator.uniform(-MAX_ROTATION, MAX_ROTATION, count)
    shear = generator.uniform(-MAX_SHEAR, MAX_SHEAR, count)
    scale = generator.uniform(*SCALE_RANGE, (count, 2))
    cos, sin = np.cos(angle), np.sin(angle)
    # [[cos, -sin], [sin, cos]] @ [[1, shear], [0, 1]] @ diag(scale)
    entries = [cos, cos * shear - sin, sin, sin * shear + cos]
    return np.stack(entries, 1).reshape(-1, 2, 2) * scale[:, np.newaxis]


def draw_offsets(generator, images, matrices):
    """Draws positions (x, y) of pixel (0, 0), [B, 2], that keep all ink."""
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
    middle = (low + high) / 2  # for ink larger than the canvas
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
    return np.rint(warped).astype(np.uint8)
