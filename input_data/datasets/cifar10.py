"""Standardized 24x24 crops of CIFAR-10, from its binary batches or TFDS.

The format: https://www.cs.toronto.edu/~kriz/cifar.html (for each image a byte
for the label, then 1,024 bytes each of red, green and blue, row by row).
"""

import pathlib

import numpy as np
import tensorflow as tf

from common.errors import user_errors
from input_data.augmentation import distort_colors, random_crop, random_flip
from input_data.datasets import tfds_images
from input_data.files import find_file
from input_data.images import labeled_images
from input_data.photographs import StandardizedCrops
from input_data.pipeline import Stream, step_seed
from input_data.registry import Split, select

CLASS_NAMES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
NUM_CLASSES = len(CLASS_NAMES)
CROP_SIZE = (24, 24)
_RECORD_BYTES = 1 + 3 * 32 * 32


def load(split, config):
    """The pipeline of one split."""
    training = split is not Split.TEST
    if config.data_dir is None:
        data = tfds_images.read("cifar10", training)
    else:
        data = read_files(pathlib.Path(config.data_dir), training)
    part = select(split, data)
    return StandardizedCrops(part, CROP_SIZE, distort, config.eval_size)


def distort(images, step, seed):
    """Random crop, flip, brightness, contrast: uint8 32x32 -> float32 24x24."""
    crops = random_crop(images, CROP_SIZE, step_seed(seed, Stream.CROP, step))
    crops = random_flip(crops, step_seed(seed, Stream.FLIP, step))
    return distort_colors(tf.cast(crops, tf.float32), step, seed)


def read_files(folder, training):
    """Training or test images of `folder`/cifar-10-batches-bin or `folder`."""
    if (folder / "cifar-10-batches-bin").is_dir():
        folder /= "cifar-10-batches-bin"
    names = [f"data_batch_{number}" for number in range(1, 6)]
    batches = []
    for name in names if training else ["test_batch"]:
        path = find_file(folder, f"{name}.bin")
        with user_errors(path):
            # Unlike `np.fromfile`, it refuses an empty file.
            content = np.memmap(path, np.uint8, "r")
            batches.append(content.reshape(-1, _RECORD_BYTES))
    records = np.concatenate(batches)
    images = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    labels = records[:, 0]
    return labeled_images(folder, images, labels, NUM_CLASSES, CLASS_NAMES)
