"""TFRecord files of images: the encoder and a random-access reader.

A TFRecord file is a sequence of frames, each the length of a record (uint64),
the masked CRC-32C of those 8 bytes, the record, and its masked CRC-32C, all
little-endian (tensorflow.org/tutorials/load_data/tfrecord). Here all records
of a file have one length, so that any of them can be read without the others.
A record is a `tf.train.Example` with height, width, depth, labels and images.
"""

import contextlib
import dataclasses
import math
import os
import pathlib
import resource

import google_crc32c
import numpy as np
import tensorflow as tf

from common.errors import UserError, reading

_LENGTH_BYTES = 8
_CRC_BYTES = 4
_HEADER_BYTES = _LENGTH_BYTES + _CRC_BYTES
# Bytes of a frame in addition to its record.
FRAME_OVERHEAD = _HEADER_BYTES + _CRC_BYTES
# TensorFlow's core/lib/hash/crc32c.h.
_MASK_DELTA = 0xA282EAD8
_SIZE_KEYS = ("height", "width", "depth")


@dataclasses.dataclass(frozen=True)
class Layout:
    """The features of a record, in addition to height, width and depth.

    Attributes:
      labels: keys of its labels, int64 in [0, num_classes).
      images: keys of its images, uint8 pixels as bytes.
      num_classes: int.
    """

    labels: tuple[str, ...]
    images: tuple[str, ...]
    num_classes: int


def encode_example(features):
    """Serializes integers, sequences of integers and bytes by their keys.

    The bytes are the same for the same features in any order.
    """
    example = tf.train.Example()
    for key, value in features.items():
        feature = example.features.feature[key]
        if isinstance(value, bytes):
            feature.bytes_list.value.append(value)
        else:
            feature.int64_list.value.extend(np.atleast_1d(value).tolist())
    return example.SerializeToString(deterministic=True)


def write_records(path, records):
    """Writes serialized records, an iterable of bytes, to a TFRecord file."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)


class RecordFiles:
    """The records of several files, numbered from 0 across all files.

    Only the records that `read` returns are in memory. Threads may share one
    object, which is also a source of pipelines.

    Args:
      paths: paths of the files.
      layout: `Layout`.

    Attributes:
      shape: (height, width, depth) of every image.
      error: the `UserError` that ended reading, or None.

    Raises:
      UserError: if a file cannot be read, is empty, cut off or damaged, or
        its records have another layout or image size than the first one.
    """

    class_names = None
    error = None

    def __init__(self, paths, layout):
        _raise_open_files_limit()
        self.num_classes = layout.num_classes
        self._layout = layout
        self._paths = [pathlib.Path(path) for path in paths]
        self._files = []
        self._header = None
        self.shape = None
        counts = []
        for path in self._paths:
            with reading(path):
                file = open(path, "rb", buffering=0)  # noqa: SIM115
                header = os.pread(file.fileno(), _HEADER_BYTES, 0)
                size = os.fstat(file.fileno()).st_size
            self._files.append(file)
            if self._header is None:
                length = int.from_bytes(header[:_LENGTH_BYTES], "little")
                self._header, self._frame = header, length + FRAME_OVERHEAD
            if not size or header != self._header or size % self._frame:
                raise UserError(
                    f"{path} is empty, cut off or damaged, or its images "
                    "differ in size"
                )
            counts.append(size // self._frame)
        self._ends = np.cumsum(counts)
        for end in self._ends:
            self.read([end - 1])

    def __len__(self):
        return int(self._ends[-1])

    def take_all(self, indices):
        """`read` in a TensorFlow graph."""

        def read(indices):
            try:
                return self.read(indices.numpy())
            except UserError as error:
                self.error = error
                raise

        labels, images = tf.py_function(read, [indices], [tf.int32, tf.uint8])
        batch_size = indices.shape[0]
        labels.set_shape((len(self._layout.labels), batch_size))
        images.set_shape((len(self._layout.images), batch_size, *self.shape))
        return labels, images

    def take(self, indices):
        """Images uint8 [B, H, W, C] and labels int32 [B], the first of each."""
        labels, images = self.take_all(indices)
        return images[0], labels[0]

    def read(self, indices):
        """Reads records and verifies their checksums and values.

        Returns:
          Labels int32 [labels, B] and images uint8 [images, B, H, W, C].
        """
        spec = dict.fromkeys(
            (*_SIZE_KEYS, *self._layout.labels),
            tf.io.FixedLenFeature((), tf.int64),
        )
        spec |= dict.fromkeys(
            self._layout.images, tf.io.FixedLenFeature((), tf.string)
        )
        records = [self._record(index) for index in indices]
        with reading(self._locate(indices[0])[0]):
            features = tf.io.parse_example(records, spec)
            sizes = np.stack([features[key] for key in _SIZE_KEYS], axis=-1)
            if self.shape is None:
                self.shape = tuple(sizes[0].tolist())
            labels = np.stack([features[key] for key in self._layout.labels])
            images = np.stack(
                [
                    tf.io.decode_raw(features[key], tf.uint8)
                    for key in self._layout.images
                ]
            )
        is_wrong_size = (sizes != self.shape).any(axis=1)
        is_wrong_size |= images.shape[-1] != math.prod(self.shape)
        self._refuse(is_wrong_size, indices, f"no image of size {self.shape}")
        is_wrong = (labels < 0) | (labels >= self._layout.num_classes)
        is_wrong = is_wrong.any(axis=0)
        if len(labels) == 2:
            is_wrong |= labels[0] == labels[1]
        last = self._layout.num_classes - 1
        reason = f"labels must differ and be from 0 to {last}"
        self._refuse(is_wrong, indices, reason)
        images = images.reshape(*images.shape[:2], *self.shape)
        return labels.astype(np.int32), images

    def _locate(self, index):
        """The path and the file of record `index`, and its number there."""
        place = np.searchsorted(self._ends, index, side="right")
        first = self._ends[place - 1] if place else 0
        return self._paths[place], self._files[place], int(index - first)

    def _record(self, index):
        path, file, number = self._locate(index)
        with reading(path):
            frame = os.pread(file.fileno(), self._frame, number * self._frame)
        record = frame[_HEADER_BYTES:-_CRC_BYTES]
        if frame[:_HEADER_BYTES] != self._header or not _is_checksum(
            record, frame[-_CRC_BYTES:]
        ):
            raise UserError(
                f"{path}: record {number} is damaged, cut off or of another "
                "length than the first one"
            )
        return record

    def _refuse(self, is_wrong, indices, reason):
        if is_wrong.any():
            path, _, number = self._locate(indices[np.argmax(is_wrong)])
            raise UserError(f"{path}: record {number}: {reason}")


def _raise_open_files_limit():
    """Allows as many open files as this user may have; many have 1,024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Some systems have no limit that can be set.
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _is_checksum(data, checksum):
    """Whether 4 bytes are the masked CRC-32C of other bytes."""
    crc = google_crc32c.value(data)
    masked = ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF
    return masked == int.from_bytes(checksum, "little")
