"""Arrays of numbers in NumPy's format, .npy, as `numpy.save` writes them.

The format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
"""

import numpy as np

from common.errors import UserError
from input_data.formats.arrays import read_values
from input_data.formats.files import opened


def read_npy(path):
    """Reads an array of numbers.

    Args:
      path: `pathlib.Path`; the file may be gzipped.

    Raises:
      UserError: naming the file, if it is of another format, holds Python
        objects (which are never loaded), is cut off or too long, or has more
        than fits in memory.
    """
    with opened(path) as file:
        try:
            version = np.lib.format.read_magic(file)
            if version != (1, 0):
                raise ValueError(f"version {version} of the format")
            header = np.lib.format.read_array_header_1_0(file)
        except ValueError as error:
            raise UserError(
                f"{path} is not an array as numpy.save writes it: {error}"
            ) from None
        shape, is_fortran, dtype = header
        if dtype.kind not in "biuf" or not shape:
            raise UserError(
                f"{path} holds {dtype} of the shape {shape}: expected an array "
                "of numbers"
            )
        if is_fortran:
            return read_values(file, path, shape[::-1], dtype).T
        return read_values(file, path, shape, dtype)
