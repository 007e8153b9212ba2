"""Random access to TFRecord files whose records all have one length.

A TFRecord file is a sequence of frames, each the length of a record (uint64),
the masked CRC-32C of those 8 bytes, the record, and its masked CRC-32C, all
little-endian (tensorflow.org/tutorials/load_data/tfrecord). Where all frames
have one length, the place of each is known without reading those before it.
"""

import contextlib
import os
import pathlib
import resource

import google_crc32c
import numpy as np

from input_data.formats.files import require_regular
from old.errors import UserError

_LENGTH = 8
_CRC = 4
_HEADER = _LENGTH + _CRC
# Bytes of a frame beside its record.
FRAME_OVERHEAD = _HEADER + _CRC
_GZIP_MAGIC = b"\x1f\x8b"
# TensorFlow's core/lib/hash/crc32c.h.
_MASK_DELTA = 0xA282EAD8
# A record is read whole; three images of 16,384 x 10,922 bytes are less.
_MAX_BYTES = 2**29


class TFRecordFiles:
    """The records of several files, numbered through.

    Opening reads the first header of each file; `read` reads the records that
    are asked for and no others, so that files of any size take no memory.
    Neither keeps a position: any number of threads may read.

    Args:
      paths: paths of the files.

    Raises:
      UserError: naming the file, if one cannot be read, is empty, cut off or
        damaged, or has records of another length.
    """

    def __init__(self, paths):
        self._paths = [pathlib.Path(path) for path in paths]
        _allow_open_files()
        self._files = [_open(path) for path in self._paths]
        self._header = _first_header(self._paths[0], self._files[0])
        self._frame = _length(self._header) + FRAME_OVERHEAD
        counts = []
        for path, file in zip(self._paths, self._files, strict=True):
            header = _first_header(path, file)
            if header != self._header:
                raise UserError(
                    f"{path}: its records are of {_length(header)} bytes but "
                    f"those of {self._paths[0]} of {_length(self._header)}: "
                    "all must hold images of one size"
                )
            count, rest = divmod(os.fstat(file.fileno()).st_size, self._frame)
            if rest:
                self._explain_size(path, file, count)
            counts.append(count)
        self._ends = np.cumsum(counts)

    def __len__(self):
        return int(self._ends[-1])

    def locate(self, index):
        """The path of the file of record `index`, and its number there."""
        place, number = self._place(index)
        return self._paths[place], number

    def read(self, indices):
        """Reads records and verifies their checksums.

        Args:
          indices: integer array [N], in [0, len(self)).

        Returns:
          List of N bytes objects.

        Raises:
          UserError: naming file and record, if one is cut off, damaged or of
            another length.
        """
        return [self._read(*self._place(index)) for index in indices]

    def _place(self, index):
        place = int(np.searchsorted(self._ends, index, side="right"))
        return place, int(index - (self._ends[place - 1] if place else 0))

    def _read(self, place, number):
        """Record `number` of one file; a position would be shared."""
        path = self._paths[place]
        try:
            frame = os.pread(
                self._files[place].fileno(), self._frame, number * self._frame
            )
        except OSError as error:
            raise UserError(
                f"{path}: record {number} cannot be read: {error.strerror}"
            ) from None
        self._check_header(path, number, frame[:_HEADER])
        if len(frame) < self._frame:
            raise UserError(f"{path} is cut off in record {number}")
        record = frame[_HEADER:-_CRC]
        if not _is_checksum(record, frame[-_CRC:]):
            raise UserError(
                f"{path} is damaged: the data of record {number} do not match "
                "their checksum (CRC)"
            )
        return record

    def _explain_size(self, path, file, count):
        """Raises for a file that is not a whole number of equal frames."""
        for number in range(count + 1):
            self._check_header(
                path,
                number,
                os.pread(file.fileno(), _HEADER, number * self._frame),
            )
        raise UserError(f"{path} is cut off in record {count}")

    def _check_header(self, path, number, header):
        if header == self._header:
            return
        if len(header) < _HEADER:
            raise UserError(f"{path} is cut off in record {number}")
        if not _is_checksum(header[:_LENGTH], header[_LENGTH:]):
            raise UserError(
                f"{path} is damaged: the length of record {number} does not "
                "match its checksum (CRC)"
            )
        raise UserError(
            f"{path}: record {number} is of {_length(header)} bytes but those "
            f"before it of {_length(self._header)}: all must hold images of "
            "one size"
        )


def _allow_open_files():
    """As many as this user may have: programs begin with 1,024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Where there is no such number the limit stays as it is.
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _open(path):
    try:
        require_regular(path)
        return open(path, "rb", buffering=0)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None


def _first_header(path, file):
    try:
        header = os.pread(file.fileno(), _HEADER, 0)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    if not header:
        raise UserError(f"{path} is empty: it has no records")
    if header.startswith(_GZIP_MAGIC):
        raise UserError(f"{path} is gzipped: unpack it")
    if len(header) < _HEADER:
        raise UserError(f"{path} is cut off in record 0")
    if not _is_checksum(header[:_LENGTH], header[_LENGTH:]):
        raise UserError(
            f"{path} is damaged or not a TFRecord file: its first 12 bytes "
            "are not a length and its checksum (CRC)"
        )
    if _length(header) > _MAX_BYTES:
        raise UserError(
            f"{path}: record 0 is of {_length(header)} bytes: those of more "
            f"than {_MAX_BYTES:,} are refused"
        )
    return header


def _length(header):
    return int.from_bytes(header[:_LENGTH], "little")


def _is_checksum(data, checksum):
    """Whether 4 bytes are the masked CRC-32C of some others."""
    crc = google_crc32c.value(data)
    masked = ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF
    return masked == int.from_bytes(checksum, "little")
