"""SVHN, the street view house numbers: cropped digits from .mat files or TFDS.

The format: http://ufldl.stanford.edu/housenumbers/ (X uint8 [32, 32, 3, N] and
y [N, 1], where 10 stands for the digit 0).
"""

import scipy.io

from input_data.datasets import tfds_images
from input_data.files import find_file, open_file
from input_data.images import labeled_images, make_pipeline
from input_data.registry import Split, select

NUM_CLASSES = 10


def load(split, config):
    """The pipeline of one split, from .mat files or else TFDS."""
    training = split is not Split.TEST
    if config.data_dir is None:
        data = tfds_images.read("svhn_cropped", training)
    else:
        name = "train_32x32.mat" if training else "test_32x32.mat"
        path = find_file(config.data_dir, name)
        with open_file(path) as file:
            variables = scipy.io.loadmat(file, variable_names=("X", "y"))
            images = variables["X"].transpose(3, 0, 1, 2)
            labels = variables["y"] % NUM_CLASSES
        data = labeled_images(path, images, labels, NUM_CLASSES)
    return make_pipeline(select(split, data), config)
