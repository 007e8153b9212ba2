"""Reads idx files, the format of the original MNIST, plain or gzipped.

The format: http://yann.lecun.com/exdb/mnist/ (two zero bytes, a type code,
the number of axes, each axis as a big-endian uint32, then the values).
"""

import math
import pathlib
import struct

import numpy as np

from common.errors import UserError
from input_data.files import read_bytes

_UNSIGNED_BYTE = 8


def read_idx(path, num_axes):
    """Reads an idx file of unsigned bytes.

    Args:
      path: path of the file; one that ends in .gz is unpacked.
      num_axes: int, the number of axes that the array must have.

    Returns:
      uint8 array.

    Raises:
      UserError: naming the file, if it cannot be read, is not an idx file of
        bytes with that many axes, or is cut off or too long.
    """
    path = pathlib.Path(path)
    content = read_bytes(path)
    header_size = 4 + 4 * num_axes
    magic = bytes([0, 0, _UNSIGNED_BYTE, num_axes])
    if content[:4] != magic:
        raise UserError(
            f"{path} is not an idx file of unsigned bytes with {num_axes} "
            f"axes: it begins with {content[:4].hex(' ') or 'nothing'}, "
            f"expected {magic.hex(' ')}"
        )
    if len(content) < header_size:
        raise UserError(f"{path} is cut off in its header")
    shape = struct.unpack(f">{num_axes}I", content[4:header_size])
    expected = header_size + math.prod(shape)
    if len(content) != expected:
        what = "cut off" if len(content) < expected else "too long"
        raise UserError(
            f"{path} is {what}: its header announces an array of {shape}, "
            f"{expected} bytes in all, but there are {len(content)}"
        )
    return np.frombuffer(content, np.uint8, offset=header_size).reshape(shape)
