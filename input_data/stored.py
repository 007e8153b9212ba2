"""Arrays whose rows stay in files until they are used."""

import hashlib
import math
import os
import pathlib
import zlib

import numpy as np

from common.errors import UserError, user_errors

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


def read_rows(path, rows, values, offset=0):
    """Fills `values` [B, ...] with the `rows` of a file, from byte `offset`."""
    # A mapped file that becomes shorter would end the process.
    with user_errors(path), open(path, "rb", buffering=0) as file:
        for place, row in enumerate(rows.tolist()):
            value = values[place : place + 1]
            file.seek(offset + row * value.nbytes)
            if file.readinto(value) < value.nbytes:
                raise ValueError("it became shorter")


def rows_in_file(path, array, convert=np.asarray):
    """`StoredRows` of an `array` that `numpy.memmap` made of a file."""
    mark = file_mark(path)

    def read(rows):
        values = np.empty((len(rows), *array.shape[1:]), array.dtype)
        read_rows(path, rows, values, array.offset)
        file_mark(path, mark)
        return convert(values)

    dtype = convert(np.empty(0, array.dtype)).dtype
    return StoredRows(np.arange(len(array)), array.shape[1:], dtype, read)


class KeptRows:
    """An array [count, *shape] in the file `folder`/`name`-`digest`.

    `digest` stands for all that the rows depend on. A checksum of it, the row's
    number and its values follows each row. So killed processes and damage leave
    rows missing, never wrong. Several processes can write at once.
    """

    def __init__(self, folder, name, digest, count, shape, dtype):
        self.path = pathlib.Path(folder, f"{name}-{digest[:32]}")
        self._digest, self._count = digest, count
        self.shape, self.dtype = shape, np.dtype(dtype)
        self._row = np.dtype([("values", dtype, shape), ("checksum", "<u4")])
        self.size = count * self._row.itemsize

    def read(self, rows):
        """Rows at some indices; raises UserError if one is damaged."""
        values, is_damaged = self._read(rows)
        if is_damaged.any():
            raise UserError(
                f"{self.path} was damaged in use; a new start mends it"
            )
        return values

    def missing(self):
        """Whether each row is still to be computed, bool [count]."""
        missing = np.ones(self._count, bool)
        if self.path.exists() and self.path.stat().st_size == self.size:
            for rows in blocks(np.arange(self._count)):
                _, missing[rows] = self._read(rows)
        return missing

    def allocate(self):
        """Creates the file if needed; raises UserError if the disk is full."""
        name = f"{self.path}, {self.size / 1e9:.1f} GB"
        with user_errors(f"{name}: cannot write"):
            is_new = not self.path.exists()
            try:
                with open(self.path, "ab") as file:
                    file.truncate(self.size)
                    if hasattr(os, "posix_fallocate"):
                        os.posix_fallocate(file.fileno(), 0, self.size)
            except OSError:
                if is_new:
                    self.path.unlink(missing_ok=True)
                raise

    def write(self, start, values):
        """Stores rows from number `start`."""
        rows = np.empty(len(values), self._row)
        rows["values"] = values
        numbers = range(start, start + len(values))
        rows["checksum"] = self._checksums(numbers, rows["values"])
        writing = user_errors(f"{self.path}: cannot write")
        with writing, open(self.path, "r+b") as file:
            file.seek(start * self._row.itemsize)
            file.write(rows)

    def _read(self, rows):
        found = np.empty(len(rows), self._row)
        read_rows(self.path, rows, found)
        values = found["values"]
        return values, found["checksum"] != self._checksums(rows, values)

    def _checksums(self, rows, values):
        names = (f"{self._digest} {row}" for row in rows)
        return [
            zlib.crc32(value.tobytes(), zlib.crc32(name.encode()))
            for name, value in zip(names, values, strict=True)
        ]
