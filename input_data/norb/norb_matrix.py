"""Reads the original smallNORB files, plain or gzipped.

The format: https://cs.nyu.edu/~ylclab/data/norb-v1.0-small/ (little-endian:
an int32 that tells the type of the values, an int32 with the number of axes,
each axis as an int32, never less than three of them, then the values).
"""

import math
import struct

import numpy as np

from common.errors import UserError
from input_data.files import listing, read_bytes, require_folder
from input_data.norb.norb_input_record import (
    DEPTH,
    IMAGE_SIZE,
    NUM_CLASSES,
    StereoImages,
)

_TYPES = {0x1E3D4C55: np.dtype("u1"), 0x1E3D4C54: np.dtype("<i4")}
_SPLIT_NAMES = {True: "training", False: "testing"}


def read_stereo_images(folder, training):
    """Reads the three files of the training or the test images.

    Args:
      folder: path of the folder with the files smallnorb-*-training-dat.mat,
        -cat.mat and -info.mat, or those of testing, plain or gzipped.
      training: bool.

    Returns:
      `StereoImages`.

    Raises:
      UserError: naming the file that is missing, damaged or does not fit.
    """
    split_name = _SPLIT_NAMES[training]
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
        if array.shape != shape or not count:
            raise UserError(
                f"{path} is not the {kind} file of smallNORB: it has an array "
                f"of the shape {array.shape}, expected {shape}"
            )
    if images.dtype != np.uint8:
        raise UserError(f"{paths['dat']} does not hold bytes")
    if labels.min() < 0 or labels.max() >= NUM_CLASSES:
        raise UserError(
            f"{paths['cat']} has labels from {labels.min()} to "
            f"{labels.max()}: those of smallNORB are 0 to {NUM_CLASSES - 1}"
        )
    return StereoImages(images, labels, meta)


def read_matrix(path):
    """Reads a file of bytes or of int32.

    Args:
      path: `pathlib.Path`; one that ends in .gz is unpacked.

    Returns:
      Array.

    Raises:
      UserError: naming the file, if it cannot be read, is not of this format,
        or is cut off or too long.
    """
    content = read_bytes(path)
    if len(content) < 8:
        raise UserError(f"{path} is cut off: it has {len(content)} bytes")
    magic, num_axes = struct.unpack("<Ii", content[:8])
    if magic not in _TYPES:
        raise UserError(
            f"{path} is not a NORB matrix of bytes or integers: it begins "
            f"with {content[:4].hex(' ')}"
        )
    start = 8 + 4 * max(3, num_axes)
    if not 0 < num_axes <= 4 or len(content) < start:
        raise UserError(f"{path} is cut off or damaged in its header")
    shape = struct.unpack(f"<{num_axes}i", content[8 : 8 + 4 * num_axes])
    dtype = _TYPES[magic]
    expected = start + math.prod(shape) * dtype.itemsize
    if min(shape) < 0 or len(content) != expected:
        what = "cut off" if len(content) < expected else "damaged"
        raise UserError(
            f"{path} is {what}: its header announces an array of {shape}, "
            f"{expected} bytes in all, but there are {len(content)}"
        )
    return np.frombuffer(content, dtype, offset=start).reshape(shape)


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
