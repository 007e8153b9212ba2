"""Arrays of files: of an announced shape, and labels."""

import math

import numpy as np

from input_data.memory import COPIES, require_memory
from old.errors import UserError


def read_values(file, path, shape, dtype):
    """Reads the rest of a file: no more than its header announces.

    Args:
      file: binary file, whose header has been read.
      path: its path, for messages.
      shape: tuple of ints, as the header has it.
      dtype: `numpy.dtype` of the values.

    Returns:
      Array of that shape.

    Raises:
      UserError: if there is none, less or more, or it does not fit in memory.
    """
    start, size = file.tell(), math.prod(shape) * dtype.itemsize
    announced = f"its header announces an array of {shape}"
    if min(shape) < 0:
        raise UserError(f"{path} is damaged: {announced}")
    if 0 in shape:  # the others may be of any size
        raise UserError(f"{path} has no images: {announced}")
    require_memory(
        COPIES * size, f"{path}: {announced}, which", "is it damaged?"
    )
    content = file.read(size)
    if len(content) < size:
        raise UserError(
            f"{path} is cut off: {announced}, {start + size} bytes in all, but "
            f"there are {start + len(content)}"
        )
    if file.read(1):
        raise UserError(
            f"{path} is damaged or too long: {announced}, {start + size} bytes "
            "in all, but there are more"
        )
    return np.frombuffer(content, dtype).reshape(shape)


def read_labels(path, values, low, high):
    """Labels as integers, once they are known to be.

    Args:
      path: path of their file, for messages.
      values: array of any shape.
      low: int, the least label.
      high: int, the largest.

    Returns:
      int64 array [N].

    Raises:
      UserError: if there are none, or others.
    """
    labels = values.reshape(-1)
    if not len(labels):
        raise UserError(f"{path} has no images: its labels are none")
    if not ((low <= labels) & (labels <= high)).all():
        raise UserError(
            f"{path} has labels from {labels.min()} to {labels.max()}: they "
            f"must be from {low} to {high}"
        )
    if (labels % 1).any():
        raise UserError(
            f"{path} has the label {labels[labels % 1 != 0][0]}: labels are "
            "whole numbers"
        )
    return labels.astype(np.int64)
