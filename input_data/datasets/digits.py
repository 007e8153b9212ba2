"""The 1,797 handwritten digits that come with this project."""

import pathlib

import numpy as np
import tensorflow as tf

from common.errors import UserError
from input_data.images import SINGLE_SHIFT, LabelledImages, make_pipeline
from input_data.registry import Split, select

NUM_CLASSES = 10
NUM_TEST = 360
# As in MNIST, validation holds out as many images as the test set has.
NUM_HELD_OUT = 360
# As in MNIST, a digit fills the central 20x20 of 28x28 pixels.
DIGIT_SIZE = 20
BORDER = 4
MAX_GRAY_LEVEL = 16
FILE = pathlib.Path(__file__).parents[1] / "digits" / "digits.npz"


def load(split, config):
    """The pipeline of one split; there is no `data_dir`."""
    if config.data_dir is not None:
        raise UserError("--dataset=digits takes no --data_dir")
    return make_pipeline(read_split(split), config, SINGLE_SHIFT)


def read_split(split):
    """The images and labels of one split, as `LabelledImages`."""
    with np.load(FILE, allow_pickle=False) as arrays:
        data = LabelledImages(
            _enlarge(arrays["images"]), arrays["labels"], NUM_CLASSES
        )
    is_test = split is Split.TEST
    data = data[-NUM_TEST:] if is_test else data[:-NUM_TEST]
    return select(split, data, NUM_HELD_OUT)


def _enlarge(images):
    """[N, 8, 8] gray levels 0 to 16 -> uint8 [N, 28, 28, 1]."""
    with tf.device("CPU:0"):
        pixels = images[..., np.newaxis] * (255.0 / MAX_GRAY_LEVEL)
        enlarged = tf.image.resize(pixels, (DIGIT_SIZE, DIGIT_SIZE)).numpy()
    border = (BORDER, BORDER)
    return np.pad(
        np.rint(enlarged).astype(np.uint8),
        ((0, 0), border, border, (0, 0)),
    )
