"""CIFAR-10 from its binary batches or TFDS: 24x24 crops, standardised.

The format: https://www.cs.toronto.edu/~kriz/cifar.html (for each image a byte
for the label, then 1,024 bytes each of red, green and blue, row by row).
"""

import os

import numpy as np
import tensorflow as tf

from input_data.dataset import DataSet
from input_data.datasets import tfds_images
from input_data.formats.arrays import read_labels
from input_data.formats.files import find, read_bytes, require_folder
from input_data.images import LabelledImages, StandardizedCrops, distort_colours
from input_data.randomness import Stream, step_seed
from input_data.splits import Split, select
from input_data.transforms.photo_distortion import random_crop, random_flip
from old.errors import UserError

CLASS_NAMES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
NUM_CLASSES = len(CLASS_NAMES)
IMAGE_SIZE = 32
DEPTH = 3
CROP_SIZE = (24, 24)
FOLDER = "cifar-10-batches-bin"
_RECORD_SIZE = 1 + DEPTH * IMAGE_SIZE * IMAGE_SIZE
_FILES = {
    True: tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
    False: ("test_batch.bin",),
}


def load(split, options):
    """The pipeline of one split; `data_dir` is the folder, or has it.

    Training crops 24x24 pixels at random, mirrors half of the crops, and
    distorts brightness and contrast; evaluation crops the middle.
    """
    data = read_cifar10(options.data_dir, split is not Split.TEST)
    part = select(split, data)
    return StandardizedCrops(part, CROP_SIZE, distort, options.eval_size)


def distort(images, step, seed):
    """Crop, flip, brightness, contrast: uint8 32x32 -> float32 24x24."""
    crops = random_crop(images, CROP_SIZE, step_seed(seed, Stream.CROP, step))
    crops = random_flip(crops, step_seed(seed, Stream.FLIP, step))
    return distort_colours(tf.cast(crops, tf.float32), step, seed)


def read_cifar10(data_dir, training):
    """Reads the training images, five batches, or the test images.

    Args:
      data_dir: path of the folder, or None for TFDS's cifar10.
      training: bool.

    Returns:
      `LabelledImages`.

    Raises:
      UserError: if files are missing or damaged.
    """
    if data_dir is None:
        return tfds_images.read("cifar10", training, NUM_CLASSES, CLASS_NAMES)
    folder = require_folder(data_dir)
    if os.path.isdir(folder / FOLDER):
        folder = require_folder(folder / FOLDER)
    hint = f". They may also be in its folder {FOLDER}"
    if folder.name == FOLDER:
        hint = ""
    paths = [find(folder, name, hint=hint) for name in _FILES[training]]
    images, labels = zip(*map(_read_batch, paths), strict=True)
    return LabelledImages(
        np.concatenate(images), np.concatenate(labels), NUM_CLASSES, CLASS_NAMES
    )


def _read_batch(path):
    """Images uint8 [N, 32, 32, 3] and labels int64 [N] of one file."""
    content = np.frombuffer(read_bytes(path), np.uint8)
    if not len(content) or len(content) % _RECORD_SIZE:
        raise UserError(
            f"{path} is cut off or not a CIFAR-10 batch: it has "
            f"{len(content)} bytes, not a multiple of {_RECORD_SIZE}"
        )
    records = content.reshape(-1, _RECORD_SIZE)
    labels = read_labels(path, records[:, 0], 0, NUM_CLASSES - 1)
    planes = records[:, 1:].reshape(-1, DEPTH, IMAGE_SIZE, IMAGE_SIZE)
    return planes.transpose(0, 2, 3, 1), labels


DATA_SET = DataSet(
    load,
    two_targets=False,
    photograph_size=(IMAGE_SIZE, IMAGE_SIZE),
)
