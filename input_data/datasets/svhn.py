"""SVHN, the street view house numbers: cropped digits, from .mat or TFDS.

The paper's section 7 trains on the 73,257 images of the training set alone,
with the smaller network that --hparams_override=preset=svhn names.

The format: http://ufldl.stanford.edu/housenumbers/ (X uint8 [32, 32, 3, N] and
y [N, 1], where 10 stands for the digit 0).
"""

import numpy as np

from input_data.dataset import DataSet
from input_data.datasets import tfds_images
from input_data.formats.arrays import read_labels
from input_data.formats.files import find
from input_data.formats.matlab import read_mat
from input_data.images import LabelledImages, make_pipeline
from input_data.splits import Split, select
from old.errors import UserError

NUM_CLASSES = 10
IMAGE_SHAPE = (32, 32, 3)


def load(split, options):
    """The pipeline of one split, pixels in [0, 1]."""
    data = read_svhn(options.data_dir, split is not Split.TEST)
    part = select(split, data)
    return make_pipeline(part, options)


def read_svhn(data_dir, training):
    """Reads the training or the test images.

    Args:
      data_dir: path of the folder with train_32x32.mat and test_32x32.mat, or
        None for TFDS's svhn_cropped.
      training: bool.

    Returns:
      `LabelledImages`.

    Raises:
      UserError: if files are missing or damaged.
    """
    if data_dir is None:
        return tfds_images.read("svhn_cropped", training, NUM_CLASSES)
    path = find(data_dir, f"{'train' if training else 'test'}_32x32.mat")
    variables = read_mat(path)
    images, labels = variables.get("X"), variables.get("y")
    if not isinstance(images, np.ndarray) or not isinstance(labels, np.ndarray):
        raise UserError(
            f"{path} is not a file of SVHN's cropped digits: it needs X and y "
            f"and has {', '.join(variables) or 'nothing'}"
        )
    expected = (*IMAGE_SHAPE, labels.size)
    if images.dtype != np.uint8 or images.shape != expected:
        raise UserError(
            f"{path} has in X an array {images.dtype} of the shape "
            f"{images.shape}, expected uint8 {expected}"
        )
    labels = read_labels(path, labels, 1, NUM_CLASSES)
    return LabelledImages(
        images.transpose(3, 0, 1, 2), labels % NUM_CLASSES, NUM_CLASSES
    )


DATA_SET = DataSet(load, two_targets=False)
