"""Reads idx files, the format of the original MNIST, plain or gzipped.

The format: http://yann.lecun.com/exdb/mnist/ (two zero bytes, a type code,
the number of axes, each axis as a big-endian uint32, then the values).
"""

import pathlib
import struct

import numpy as np

from input_data.formats.arrays import read_values
from input_data.formats.files import opened
from old.errors import UserError

_UNSIGNED_BYTE = 8


def read_idx(path, num_axes):
    """Reads an idx file of unsigned bytes.

    Args:
      path: path of the file; one that ends in .gz is unpacked.
      num_axes: int, how many axes the array must have.

    Returns:
      uint8 array.

    Raises:
      UserError: naming the file, if it cannot be read, is not an idx file of
        unsigned bytes with that many axes, or is cut off or too long.
    """
    path = pathlib.Path(path)
    magic = bytes([0, 0, _UNSIGNED_BYTE, num_axes])
    with opened(path) as file:
        header = file.read(4 + 4 * num_axes)
        if header[:4] != magic:
            raise UserError(
                f"{path} is not an idx file of unsigned bytes with {num_axes} "
                f"axes: it begins with {header[:4].hex(' ') or 'nothing'}, "
                f"expected {magic.hex(' ')}"
            )
        if len(header) < 4 + 4 * num_axes:
            raise UserError(f"{path} is cut off in its header")
        shape = struct.unpack(f">{num_axes}I", header[4:])
        return read_values(file, path, shape, np.dtype("u1"))
