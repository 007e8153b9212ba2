"""Finds the files of a data set, unpacks them and checks their labels."""

import gzip
import pathlib

import numpy as np

from common.errors import UserError, reading
from input_data.images import LabelledImages

_MAX_LISTED = 10


def find(data_dir, *names, hint=""):
    """The path of the first of `names` that is a file in a folder.

    Raises UserError, with `hint`, if there is none.
    """
    folder = pathlib.Path(data_dir)
    for name in names:
        if (folder / name).is_file():
            return folder / name
    with reading(folder):
        contents = sorted(path.name for path in folder.iterdir())
    raise UserError(
        f"--data_dir={folder} has no {' or '.join(names)}{hint}; it contains "
        f"{', '.join(contents[:_MAX_LISTED]) or 'nothing'}"
    )


def open_file(path):
    """Opens a binary file for reading; one that ends in .gz is unpacked."""
    return gzip.open(path) if path.suffix == ".gz" else open(path, "rb")


def labelled_images(path, images, labels, num_classes, class_names=None):
    """Creates `LabelledImages` from the arrays of a file.

    Raises UserError if there are no images, another number of labels, or
    labels out of [0, num_classes).
    """
    labels = np.asarray(labels).reshape(-1)
    if not len(images) or len(images) != len(labels):
        raise UserError(
            f"{path} has {len(images)} images and {len(labels)} labels"
        )
    if labels.min() < 0 or labels.max() >= num_classes:
        raise UserError(
            f"{path} has labels from {labels.min()} to {labels.max()}, "
            f"expected 0 to {num_classes - 1}"
        )
    return LabelledImages(
        images, labels.astype(np.int64), num_classes, class_names
    )
