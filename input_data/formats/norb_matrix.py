"""Reads the matrix files of the original smallNORB, plain or gzipped.

The format: https://cs.nyu.edu/~ylclab/data/norb-v1.0-small/ (little-endian:
an int32 that tells the type of the values, an int32 with the number of axes,
each axis as an int32, never less than three of them, then the values).
"""

import struct

import numpy as np

from input_data.formats.arrays import read_values
from input_data.formats.files import opened
from old.errors import UserError

_TYPES = {0x1E3D4C55: np.dtype("u1"), 0x1E3D4C54: np.dtype("<i4")}
_MAX_AXES = 4


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
    with opened(path) as file:
        start = file.read(8)
        if len(start) < 8:
            raise UserError(f"{path} is cut off: it has {len(start)} bytes")
        magic, num_axes = struct.unpack("<Ii", start)
        if magic not in _TYPES:
            raise UserError(
                f"{path} is not a NORB matrix of bytes or integers: it begins "
                f"with {start[:4].hex(' ')}"
            )
        num_stored = max(3, num_axes)
        if 0 < num_axes <= _MAX_AXES:
            axes = file.read(4 * num_stored)
        if not 0 < num_axes <= _MAX_AXES or len(axes) < 4 * num_stored:
            raise UserError(f"{path} is cut off or damaged in its header")
        shape = struct.unpack(f"<{num_stored}i", axes)[:num_axes]
        return read_values(file, path, shape, _TYPES[magic])
