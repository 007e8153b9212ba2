"""Arrays whose rows stay in files until they are used."""

import hashlib
import math
import os

import numpy as np

from common.errors import UserError, user_errors
from common.files import atomic_write

MEMORY_BYTES = 500_000_000  # larger arrays are not copied to memory
_BLOCK_ROWS = 512


class StoredRows:
    """An array [N, ...] of which only the rows in use are in memory.

    Indexing with a slice or with indices selects rows; `numpy.asarray` reads
    them. `read(items)` gives the rows, of `shape`, of some of the `items`, file
    names or row numbers. `describe(items)` is faster than a digest of the rows.
    """

    def __init__(self, items, shape, dtype, read, describe=None):
        self._items, self._read, self._describe = items, read, describe
        self.shape, self.dtype = (len(items), *shape), np.dtype(dtype)
        self.ndim = len(self.shape)

    def __len__(self):
        return len(self._items)

    def __getitem__(self, part):
        others = self.shape[1:], self.dtype, self._read, self._describe
        return StoredRows(self._items[part], *others)

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self._read(self._items), dtype)

    @property
    def nbytes(self):
        return math.prod(self.shape) * self.dtype.itemsize

    def description(self):
        """A digest of the rows, or of the files that they are in."""
        if self._describe is None:
            return digest(self)
        return hashlib.sha256(self._describe(self._items)).hexdigest()


def is_large(rows):
    """Whether rows are `StoredRows` that are not to be copied to memory."""
    return isinstance(rows, StoredRows) and rows.nbytes > MEMORY_BYTES


def blocks(array):
    """Yields an array or `StoredRows` in NumPy arrays of some rows."""
    for start in range(0, len(array), _BLOCK_ROWS):
        yield np.ascontiguousarray(array[start : start + _BLOCK_ROWS])


def digest(array):
    """The SHA-256 of an array or of `StoredRows`, as hexadecimal digits."""
    sha256 = hashlib.sha256()
    for block in blocks(array):
        sha256.update(block)
    return sha256.hexdigest()


def file_digest(path):
    """The SHA-256 of a file's content, as bytes."""
    sha256 = hashlib.sha256()
    with user_errors(path), path.open("rb") as file:
        while block := file.read(2**20):
            sha256.update(block)
    return sha256.digest()


def file_mark(path, expected=None):
    """A value that changes with a file; UserError if it is not `expected`."""
    with user_errors(path):
        status = os.stat(path)
    # Programs can set the time of modification, but not that of the status.
    mark = status.st_size, status.st_mtime_ns, status.st_ctime_ns
    if expected not in (None, mark):
        raise UserError(f"{path} was changed while it was in use")
    return mark


def rows_in_file(path, array, convert=np.asarray):
    """`StoredRows` of an `array` that `numpy.memmap` made of a file."""
    mark = file_mark(path)

    def read(rows):
        values = np.empty((len(rows), *array.shape[1:]), array.dtype)
        # A mapped file that becomes shorter would end the process.
        with user_errors(path), open(path, "rb", buffering=0) as file:
            for place, row in enumerate(rows.tolist()):
                value = values[place : place + 1]
                file.seek(array.offset + row * value.nbytes)
                if file.readinto(value) < value.nbytes:
                    raise ValueError("it became shorter")
        file_mark(path, mark)
        return convert(values)

    dtype = convert(np.empty(0, array.dtype)).dtype
    return StoredRows(np.arange(len(array)), array.shape[1:], dtype, read)


def kept_rows(path, shape, dtype, blocks):
    """`StoredRows` of a file, to which `blocks` of rows are written if needed.

    All rows have the `shape` [N, ...]. A killed process leaves no such file.
    """
    if not path.exists():
        with atomic_write(path, True) as partial, open(partial, "wb") as file:
            for block in blocks:
                file.write(np.ascontiguousarray(block, dtype))
    with user_errors(path):
        return rows_in_file(path, np.memmap(path, dtype, "r").reshape(shape))
