"""SVHN, the street view house numbers: cropped digits from .mat files or TFDS.

Section 7 of the paper trains on the 73,257 images of the training set, with
the smaller network of --hparams_override=preset=svhn.

The format: http://ufldl.stanford.edu/housenumbers/ (X uint8 [32, 32, 3, N] and
y [N, 1], where 10 stands for the digit 0).
"""

import scipy.io

from common.errors import reading
from input_data.datasets import tfds_images
from input_data.files import find, labelled_images
from input_data.images import make_pipeline
from input_data.registry import Split, select

NUM_CLASSES = 10


def load(split, config):
    """The pipeline of one split, pixels in [0, 1]."""
    data = read_svhn(config.data_dir, split is not Split.TEST)
    return make_pipeline(select(split, data), config)


def read_svhn(data_dir, training):
    """Reads train_32x32.mat or test_32x32.mat as `LabelledImages`.

    Without `data_dir` the images are TFDS's svhn_cropped.
    """
    if data_dir is None:
        return tfds_images.read("svhn_cropped", training, NUM_CLASSES)
    path = find(data_dir, f"{'train' if training else 'test'}_32x32.mat")
    with reading(path):
        variables = scipy.io.loadmat(path, variable_names=("X", "y"))
        images = variables["X"].transpose(3, 0, 1, 2)
        labels = variables["y"] % NUM_CLASSES
    return labelled_images(path, images, labels, NUM_CLASSES)
