"""The 1,797 handwritten digits that come with this project."""

import pathlib

import numpy as np

from input_data.images import LabeledImages, make_pipeline
from input_data.registry import Split, select
from input_data.transforms import enlarge

NUM_CLASSES = 10
# As in MNIST, validation holds out as many images as the test set has.
NUM_TEST = 360
FILE = pathlib.Path(__file__).parents[1] / "digits" / "digits.npz"


def load(split, config):
    """The pipeline of one split."""
    return make_pipeline(read_split(split), config)


def read_split(split):
    """The images and labels of one split, as `LabeledImages`."""
    with np.load(FILE, allow_pickle=False) as arrays:
        # [N, 8, 8], gray levels 0 to 16.
        pixels = arrays["images"][..., np.newaxis] * (255.0 / 16)
        labels = arrays["labels"]
    # As in MNIST, a digit fills the central 20x20 of 28x28 pixels.
    border = ((0, 0), (4, 4), (4, 4), (0, 0))
    images = np.pad(np.rint(enlarge(pixels)).astype(np.uint8), border)
    part = slice(-NUM_TEST, None) if split is Split.TEST else slice(-NUM_TEST)
    data = LabeledImages(images[part], labels[part], NUM_CLASSES)
    return select(split, data, NUM_TEST)
