"""CIFAR-10 from its binary batches or TFDS: standardized 24x24 crops.

The format: https://www.cs.toronto.edu/~kriz/cifar.html (for each image a byte
for the label, then 1,024 bytes each of red, green and blue, row by row).
"""

import pathlib

import numpy as np
import tensorflow as tf

from common.errors import UserError, reading
from input_data.augmentation import distort_colors, random_crop, random_flip
from input_data.datasets import tfds_images
from input_data.files import find, labelled_images
from input_data.images import StandardizedCrops
from input_data.pipeline import Stream, step_seed
from input_data.registry import Split, select

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
CROP_SIZE = (24, 24)
# Channels, height and width of an image in the files.
_STORED_SHAPE = (3, 32, 32)
_RECORD_BYTES = 1 + 3 * 32 * 32
_FOLDER = "cifar-10-batches-bin"
_TRAINING_FILES = tuple(f"data_batch_{number}.bin" for number in range(1, 6))


def load(split, config):
    """The pipeline of one split.

    Training crops 24x24 pixels at random, mirrors half of the crops, and
    distorts brightness and contrast; evaluation crops the center.
    """
    data = read_cifar10(config.data_dir, split is not Split.TEST)
    part = select(split, data)
    return StandardizedCrops(part, CROP_SIZE, distort, config.eval_size)


def distort(images, step, seed):
    """Crop, flip, brightness, contrast: uint8 32x32 -> float32 24x24."""
    crops = random_crop(images, CROP_SIZE, step_seed(seed, Stream.CROP, step))
    crops = random_flip(crops, step_seed(seed, Stream.FLIP, step))
    return distort_colors(tf.cast(crops, tf.float32), step, seed)


def read_cifar10(data_dir, training):
    """Reads the five training batches or the test batch as `LabelledImages`.

    `data_dir` has the batches or their folder cifar-10-batches-bin; None means
    TFDS's cifar10.
    """
    if data_dir is None:
        return tfds_images.read("cifar10", training, NUM_CLASSES, CLASS_NAMES)
    folder = pathlib.Path(data_dir)
    if (folder / _FOLDER).is_dir():
        folder /= _FOLDER
    names = _TRAINING_FILES if training else ("test_batch.bin",)
    paths = [find(folder, name) for name in names]
    batches = []
    for path in paths:
        with reading(path):
            content = np.frombuffer(path.read_bytes(), np.uint8)
            batches.append(content.reshape(-1, _RECORD_BYTES))
            if not len(batches[-1]):
                raise UserError(f"{path} is empty")
    records = np.concatenate(batches)
    planes = records[:, 1:].reshape(-1, *_STORED_SHAPE)
    return labelled_images(
        paths[0].parent,
        planes.transpose(0, 2, 3, 1),
        records[:, 0],
        NUM_CLASSES,
        CLASS_NAMES,
    )
