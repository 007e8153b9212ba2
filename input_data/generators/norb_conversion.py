"""Makes the reference's smallNORB records from the original files or TFDS."""

import pathlib

import numpy as np

from common import durable
from common.errors import UserError
from input_data.datasets import tfds_images
from input_data.formats.arrays import read_labels
from input_data.formats.files import listing, require_folder
from input_data.formats.norb_matrix import read_matrix
from input_data.formats.norb_records import (
    DEPTH,
    IMAGE_SIZE,
    NUM_CLASSES,
    StereoImages,
    file_name,
    write_records,
)


def convert(data_dir, output_dir):
    """Writes the records of the training and the test images.

    Args:
      data_dir: path of the folder with the original files, or None for TFDS.
      output_dir: path of the folder to write to; made if need be.

    Raises:
      UserError: if the source is missing or damaged, the records are there
        already, or cannot be written.
    """
    paths = {
        training: pathlib.Path(output_dir) / file_name(training)
        for training in (True, False)
    }
    for path in paths.values():
        durable.refuse_existing(path)
    # Both are read before one is written: what is there is not replaced.
    found = [_read(data_dir, training) for training in paths]
    durable.remove_leftovers(durable.make_folder(output_dir))
    for path, data in zip(paths.values(), found, strict=True):
        write_records(path, data)
        print(f"{path}: {len(data.labels)} records")


def _read(data_dir, training):
    if data_dir is None:
        return tfds_images.read_smallnorb(training)
    return read_originals(data_dir, training)


def read_originals(folder, training):
    """Reads the three original files of the training or the test images.

    Args:
      folder: path of the folder with the files smallnorb-*-training-dat.mat,
        -cat.mat and -info.mat, or those of testing, plain or gzipped.
      training: bool.

    Returns:
      `StereoImages`.

    Raises:
      UserError: naming the file that is missing, damaged or does not fit.
    """
    split_name = "training" if training else "testing"
    paths = {
        kind: _find(folder, f"*{split_name}-{kind}.mat")
        for kind in ("dat", "cat", "info")
    }
    images, labels, meta = (read_matrix(path) for path in paths.values())
    count = len(images)
    for (kind, path), array, shape in zip(
        paths.items(),
        (images, labels, meta),
        ((count, DEPTH, IMAGE_SIZE, IMAGE_SIZE), (count,), (count, 4)),
        strict=True,
    ):
        if array.shape != shape:
            raise UserError(
                f"{path} is not the {kind} file of smallNORB: it has an array "
                f"of the shape {array.shape}, expected {shape}"
            )
    if images.dtype != np.uint8:
        raise UserError(f"{paths['dat']} does not hold bytes")
    labels = read_labels(paths["cat"], labels, 0, NUM_CLASSES - 1)
    return StereoImages(images, labels, meta)


def _find(folder, pattern):
    folder = require_folder(folder)
    found = sorted([*folder.glob(pattern), *folder.glob(pattern + ".gz")])
    # A file that is there both plain and gzipped is one file.
    if len({path.name.removesuffix(".gz") for path in found}) != 1:
        names = ", ".join(path.name for path in found)
        raise UserError(
            f"--data_dir={folder} must have one file {pattern} or "
            f"{pattern}.gz; it has: {names or listing(folder)}"
        )
    return found[0]
