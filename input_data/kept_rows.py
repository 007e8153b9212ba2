"""Rows that were computed once and stay in a file, for this run and others."""

import os
import pathlib
import zlib

import numpy as np

from common.errors import writing
from input_data.stored import read_rows

_CHECKSUM_BYTES = 4
_BLOCK_ROWS = 64


class KeptRows:
    """An array [count, *shape] in the file `folder`/`name`-`digest`.

    `digest` stands for everything that the rows depend on. A checksum of it,
    the row's number and its values follows each row. So processes that are
    killed, damage, and other files leave rows missing, never wrong; and several
    processes can write the same rows at the same time.
    """

    def __init__(self, folder, name, digest, count, shape, dtype):
        self.path = pathlib.Path(folder, f"{name}-{digest[:32]}")
        self._digest, self._count = digest, count
        self.shape, self.dtype = shape, np.dtype(dtype)
        values_bytes = int(np.prod(shape)) * self.dtype.itemsize
        self._row_bytes = values_bytes + _CHECKSUM_BYTES
        self.size = count * self._row_bytes

    def read(self, rows):
        """Rows at some indices, without a test of their checksums."""
        raw = np.empty((len(rows), self._row_bytes), np.uint8)
        read_rows(self.path, rows, raw)
        values = np.ascontiguousarray(raw[:, :-_CHECKSUM_BYTES])
        return values.view(self.dtype).reshape(len(rows), *self.shape)

    def missing(self):
        """Whether each row is still to be computed, bool [count]."""
        missing = np.ones(self._count, bool)
        if self.path.exists() and self.path.stat().st_size == self.size:
            for start in range(0, self._count, _BLOCK_ROWS):
                rows = np.arange(start, min(start + _BLOCK_ROWS, self._count))
                raw = np.empty((len(rows), self._row_bytes), np.uint8)
                read_rows(self.path, rows, raw)
                expected = self._checksums(start, raw[:, :-_CHECKSUM_BYTES])
                is_right = (raw[:, -_CHECKSUM_BYTES:] == expected).all(axis=1)
                missing[rows] = ~is_right
        return missing

    def allocate(self):
        """Creates the file if needed; raises UserError if the disk is full."""
        with writing(f"{self.path}, {self.size / 1e9:.1f} GB"):
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
        values = np.ascontiguousarray(values, self.dtype)
        raw = values.reshape(len(values), -1).view(np.uint8)
        raw = np.hstack([raw, self._checksums(start, raw)])
        with writing(self.path), open(self.path, "r+b") as file:
            file.seek(start * self._row_bytes)
            file.write(raw)

    def _checksums(self, start, raw):
        numbers = (
            zlib.crc32(
                row.tobytes(), zlib.crc32(f"{self._digest} {n}".encode())
            )
            for n, row in enumerate(raw, start)
        )
        sums = np.fromiter(numbers, "<u4", len(raw))
        return sums[:, np.newaxis].view(np.uint8)
