"""Random access to TFRecord files whose records all have one length.

A TFRecord file is a sequence of frames, each the length of a record (uint64),
the masked CRC-32C of those 8 bytes, the record, and its masked CRC-32C, all
little-endian (tensorflow.org/tutorials/load_data/tfrecord). Where all frames
have one length, the place of each is known without reading those before it.
"""

import os
import pathlib

import numpy as np

from common.errors import UserError
from input_data.crc32c import MIN_BYTES, masked_crc32c

_LENGTH = 8
_CRC = 4
_HEADER = _LENGTH + _CRC
# Bytes of a frame beside its record.
FRAME_OVERHEAD = _HEADER + _CRC
_GZIP_MAGIC = b"\x1f\x8b"


class TFRecordFiles:
    """The records of several files, numbered through.

    Opening reads one header of each file; `read` reads the records that are
    asked for and no others, so that files of any size take no memory. Neither
    keeps a position: any number of threads may read.

    Args:
      paths: paths of the files.

    Raises:
      UserError: naming the file, if one cannot be read, is empty, cut off or
        damaged, or has records of another length.
    """

    def __init__(self, paths):
        self._paths = [pathlib.Path(path) for path in paths]
        self._files = [_open(path) for path in self._paths]
        headers = [
            _first_header(path, file)
            for path, file in zip(self._paths, self._files, strict=True)
        ]
        self._header = headers[0]
        self._frame = _length(self._header) + FRAME_OVERHEAD
        counts = []
        for path, file, header in zip(
            self._paths, self._files, headers, strict=True
        ):
            if header != self._header:
                raise UserError(
                    f"{path}: its records are of {_length(header)} bytes but "
                    f"those of {self._paths[0]} of {_length(self._header)}: "
                    "all must hold images of one size"
                )
            count, rest = divmod(os.fstat(file.fileno()).st_size, self._frame)
            if rest:
                self._explain_size(path, file)
            counts.append(count)
        self._ends = np.cumsum(counts)

    def __len__(self):
        return int(self._ends[-1])

    def locate(self, index):
        """The path of the file of record `index`, and its number there."""
        file = int(np.searchsorted(self._ends, index, side="right"))
        before = int(self._ends[file - 1]) if file else 0
        return self._paths[file], int(index) - before

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
        frames = np.empty((len(indices), self._frame), np.uint8)
        files = np.searchsorted(self._ends, indices, side="right")
        starts = np.concatenate([[0], self._ends])[files]
        places = (np.asarray(indices) - starts) * self._frame
        for frame, index, file, place in zip(
            frames, indices, files.tolist(), places.tolist(), strict=True
        ):
            self._read_frame(frame, index, file, place)
        header = np.frombuffer(self._header, np.uint8)
        for row in np.flatnonzero((frames[:, :_HEADER] != header).any(axis=1)):
            path, number = self.locate(indices[row])
            raise UserError(
                self._explain_header(path, number, frames[row, :_HEADER])
            )
        records = frames[:, _HEADER:-_CRC]
        expected = np.ascontiguousarray(frames[:, -_CRC:]).view("<u4")[:, 0]
        for row in np.flatnonzero(masked_crc32c(records) != expected):
            path, number = self.locate(indices[row])
            raise UserError(
                f"{path} is damaged: the data of record {number} do not match "
                "their checksum (CRC)"
            )
        return [record.tobytes() for record in records]

    def _read_frame(self, frame, index, file, place):
        """Fills one row; asks for bytes by place, as a position is shared."""
        try:
            count = os.preadv(self._files[file].fileno(), [frame], place)
        except OSError as error:
            path, number = self.locate(index)
            raise UserError(
                f"{path}: record {number} cannot be read: {error.strerror}"
            ) from None
        if count != len(frame):
            path, number = self.locate(index)
            raise UserError(f"{path} is cut off in record {number}")

    def _explain_size(self, path, file):
        """Raises for a file that is not a whole number of equal frames."""
        number = place = 0
        while True:
            header = os.pread(file.fileno(), _HEADER, place)
            if header != self._header:
                break
            number, place = number + 1, place + self._frame
            if place > os.fstat(file.fileno()).st_size:
                raise UserError(f"{path} is cut off in record {number - 1}")
        raise UserError(self._explain_header(path, number, header))

    def _explain_header(self, path, number, header):
        """What is wrong with the header of record `number`."""
        header = bytes(header)
        if len(header) < _HEADER:
            return f"{path} is cut off in record {number}"
        if not _is_sound(header):
            return (
                f"{path} is damaged: the length of record {number} does not "
                "match its checksum (CRC)"
            )
        return (
            f"{path}: record {number} is of {_length(header)} bytes but those "
            f"before it of {_length(self._header)}: all must hold images of "
            "one size"
        )


def _open(path):
    try:
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
    if not _is_sound(header):
        raise UserError(
            f"{path} is damaged or not a TFRecord file: its first 12 bytes "
            "are not a length and its checksum (CRC)"
        )
    if _length(header) < MIN_BYTES:
        raise UserError(
            f"{path}: its first record is of {_length(header)} bytes: no image"
        )
    return header


def _length(header):
    return int.from_bytes(header[:_LENGTH], "little")


def _is_sound(header):
    length = np.frombuffer(header[:_LENGTH], np.uint8)
    return masked_crc32c(length[np.newaxis])[0] == int.from_bytes(
        header[_LENGTH:], "little"
    )
