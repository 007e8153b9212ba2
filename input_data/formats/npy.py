"""Arrays of numbers in NumPy's format, .npy, as `numpy.save` writes them.

The format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
Its header is a line of Python, which numpy.load evaluates; here it is matched.
"""

import re

import numpy as np

from input_data.formats.arrays import read_values
from input_data.formats.files import opened
from old.errors import UserError
from old.text import shortened

_MAGIC = b"\x93NUMPY\x01\x00"
_HEADER = re.compile(
    rb"{'descr': '([<>|=][biuf][1248])', 'fortran_order': (True|False), "
    rb"'shape': \((\d{1,18}(?:, ?\d{1,18})*),?\),? ?}\s*"
)


def read_npy(path):
    """Reads an array of numbers.

    Args:
      path: `pathlib.Path`; the file may be gzipped.

    Raises:
      UserError: naming the file, if it is of another format, holds no numbers
        (Python objects are never loaded), is cut off or too long, or has more
        than fits in memory.
    """
    with opened(path) as file:
        start = file.read(len(_MAGIC) + 2)
        length = int.from_bytes(start[len(_MAGIC) :], "little")
        header = file.read(length) if start.startswith(_MAGIC) else start
        match = _HEADER.fullmatch(header)
        if match is None:
            raise UserError(
                f"{path} is not an array of numbers as numpy.save writes it: "
                f"its header is {shortened(header)}"
            )
        kind, is_fortran, sizes = match.groups()
        try:
            dtype = np.dtype(kind.decode())
        except TypeError:  # such as a float of one byte
            raise UserError(
                f"{path} holds {kind.decode()}, which is no type of numbers"
            ) from None
        shape = tuple(map(int, sizes.split(b",")))
        if is_fortran == b"True":
            return read_values(file, path, shape[::-1], dtype).T
        return read_values(file, path, shape, dtype)
