"""The 1,797 handwritten digits that come with this project."""

import pathlib

import numpy as np
import tensorflow as tf

from input_data.dataset import DataSet
from input_data.images import (
    SINGLE_SHIFT,
    LabelledImages,
    make_pipeline,
)
from input_data.splits import Split, select
from old.errors import UserError

NUM_CLASSES = 10
NUM_TEST = 360
# As in MNIST, where validation holds out as many images as the test set has.
NUM_HELD_OUT = 360
# As in MNIST, a digit fills 20x20 pixels in the middle of 28x28.
DIGIT_SIZE = 20
BORDER = 4
MAX_GREY_LEVEL = 16
FILE = pathlib.Path(__file__).parents[1] / "digits" / "digits.npz"


def load(split, options):
    """The pipeline of one split; there is no `data_dir`."""
    refuse_folder(options.data_dir)
    return make_pipeline(read_split(split), options, SINGLE_SHIFT)


def refuse_folder(data_dir):
    """Raises UserError for a folder: the images come with the project."""
    if data_dir is not None:
        raise UserError(
            "--dataset=digits comes with the project: leave out --data_dir"
        )


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
    """[N, 8, 8] grey levels 0 to 16 -> uint8 [N, 28, 28, 1]."""
    with tf.device("CPU:0"):
        pixels = images[..., np.newaxis] * (255.0 / MAX_GREY_LEVEL)
        enlarged = tf.image.resize(pixels, (DIGIT_SIZE, DIGIT_SIZE)).numpy()
    border = (BORDER, BORDER)
    return np.pad(
        np.rint(enlarged).astype(np.uint8),
        ((0, 0), border, border, (0, 0)),
    )


DATA_SET = DataSet(load, centred=True)
