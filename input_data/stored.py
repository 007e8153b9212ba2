"""Arrays whose rows stay on disk until they are used."""

import hashlib
import math
import os

import numpy as np

from common.errors import UserError, reading

# Larger arrays of images are not copied to memory.
MEMORY_BYTES = 500_000_000
_BLOCK_ROWS = 512


class StoredRows:
    """An array [N, ...] of which only the rows in use are in memory.

    Indexing with a slice or with indices selects rows but reads nothing.
    `numpy.asarray` reads the selected rows. `read(items)` returns the rows of
    some of the `items`, an array [N] of file names or row numbers. `shape` is
    that of a row. `describe(items)` returns bytes that differ if the rows
    differ; without this argument `digest` reads all rows.
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
    def fits_in_memory(self):
        return math.prod(self.shape) <= MEMORY_BYTES

    def description(self):
        """A digest of what the rows depend on, or of the rows themselves."""
        if self._describe is None:
            return digest(self)
        return hashlib.sha256(self._describe(self._items)).hexdigest()


def held(rows):
    """An array of `StoredRows` that fit into memory, else `StoredRows`.

    Also an array can be too large to have a second copy, a tensor.
    """
    if isinstance(rows, StoredRows):
        return np.asarray(rows) if rows.fits_in_memory else rows
    if rows.nbytes <= MEMORY_BYTES:
        return rows
    items = np.arange(len(rows))
    return StoredRows(items, rows.shape[1:], rows.dtype, rows.__getitem__)


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


def file_marks(paths):
    """Bytes that change if a file is another one or was written again."""
    marks = []
    for path in paths:
        with reading(path):
            status = os.stat(path)
        marks.append(
            (os.path.abspath(path), status.st_size, status.st_mtime_ns)
        )
    return repr(marks).encode()


def read_rows(path, rows, values, offset=0):
    """Fills `values` [B, ...] with the `rows` of a file, from byte `offset`.

    The rows are read, not mapped: a mapped file that becomes shorter would end
    the process.
    """
    with reading(path), open(path, "rb", buffering=0) as file:
        for row, value in zip(rows.tolist(), values, strict=True):
            file.seek(offset + row * value.nbytes)
            if file.readinto(value) < value.nbytes:
                raise ValueError("it became shorter")


def rows_in_file(path, array, convert=np.asarray):
    """`StoredRows` of an `array` that `numpy.memmap` made of a file.

    Reading raises UserError if the file was written to in the meantime.
    """
    marks = file_marks([path])

    def read(rows):
        values = np.empty((len(rows), *array.shape[1:]), array.dtype)
        read_rows(path, rows, values, array.offset)
        if file_marks([path]) != marks:
            raise UserError(f"{path} was changed while it was in use")
        return convert(values)

    rows, shape = np.arange(len(array)), array.shape[1:]
    dtype = convert(np.empty(0, array.dtype)).dtype
    return StoredRows(
        rows, shape, dtype, read, lambda rows: marks + rows.tobytes()
    )
