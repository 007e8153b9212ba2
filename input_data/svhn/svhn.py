"""SVHN, the street view house numbers: cropped digits, from .mat or TFDS.

The paper's section 7 trains on the 73,257 images of the training set alone,
with the smaller network that --hparams_override=preset=svhn names.

The format: http://ufldl.stanford.edu/housenumbers/ (X uint8 [32, 32, 3, N] and
y [N, 1], where 10 stands for the digit 0).
"""

import numpy as np

from common.errors import UserError
from input_data.files import listing, require_folder
from input_data.labelled_images import LabelledImages, make_pipeline
from input_data.matlab import read_mat
from input_data.splits import Split, num_held_out, select
from input_data.tfds import tfds_images

NUM_CLASSES = 10
IMAGE_SHAPE = (32, 32, 3)


def load(split, options):
    """The pipeline of one split of SVHN, pixels in [0, 1].

    Args:
      split: `Split`.
      options: `registry.Options`; `data_dir` holds train_32x32.mat and
        test_32x32.mat; without it, TFDS's svhn_cropped.

    Returns:
      `Pipeline`.

    Raises:
      UserError: if files are missing or damaged.
    """
    data = read_svhn(options.data_dir, split is not Split.TEST)
    part = select(split, data, data, num_held_out(len(data)))
    return make_pipeline(part, options)


def read_svhn(data_dir, training):
    """Reads the images and labels of SVHN.

    Args:
      data_dir: path of the folder with the .mat files, or None for TFDS.
      training: bool, the training or the test images.

    Returns:
      `LabelledImages`.

    Raises:
      UserError: if files are missing or damaged.
    """
    name = "train" if training else "test"
    if data_dir is None:
        return tfds_images.read("svhn_cropped", name, NUM_CLASSES)
    folder = require_folder(data_dir)
    path = folder / f"{name}_32x32.mat"
    if not path.is_file():
        raise UserError(
            f"--data_dir={data_dir} has no {path.name}; it has: "
            f"{listing(folder)}"
        )
    variables = read_mat(path)
    images, labels = variables.get("X"), variables.get("y")
    if not isinstance(images, np.ndarray) or not isinstance(labels, np.ndarray):
        raise UserError(
            f"{path} is not a file of SVHN's cropped digits: it needs X and y "
            f"and has {', '.join(variables) or 'nothing'}"
        )
    count = labels.size
    if images.dtype != np.uint8 or images.shape != (*IMAGE_SHAPE, count):
        raise UserError(
            f"{path} has in X an array {images.dtype} of the shape "
            f"{images.shape}, expected uint8 {(*IMAGE_SHAPE, count)}"
        )
    labels = labels.reshape(-1).astype(np.int64)
    if not count or labels.min() < 1 or labels.max() > NUM_CLASSES:
        raise UserError(
            f"{path} must have in y labels from 1 to {NUM_CLASSES}; it has "
            + (f"{labels.min()} to {labels.max()}" if count else "none")
        )
    return LabelledImages(
        images.transpose(3, 0, 1, 2), labels % NUM_CLASSES, NUM_CLASSES
    )
