"""TFRecord files of images: the encoder and a random-access reader.

A TFRecord file is a sequence of frames. A frame is the length of a record
(uint64), the masked CRC-32C of the length, the record, and the masked CRC-32C
of the record, little-endian (tensorflow.org/tutorials/load_data/tfrecord). All
records must have the same length, so that a reader can seek to any record.
A record is a `tf.train.Example` with height, width, depth, labels and images.
"""

import math

import google_crc32c
import numpy as np
import tensorflow as tf

from common.errors import UserError, user_errors
from common.files import atomic_write
from input_data.stored import StoredRows, file_mark

_LENGTH_BYTES = 8
_CRC_BYTES = 4
_HEADER_BYTES = _LENGTH_BYTES + _CRC_BYTES
FRAME_OVERHEAD = _HEADER_BYTES + _CRC_BYTES  # bytes around a record
_MASK_DELTA = 0xA282EAD8  # TensorFlow's core/lib/hash/crc32c.h
_SIZE_KEYS = ("height", "width", "depth")


def encode_example(features):
    """Serializes a dict of bytes, integers or lists; its order is ignored."""
    example = tf.train.Example()
    for key, value in features.items():
        feature = example.features.feature[key]
        if isinstance(value, bytes):
            feature.bytes_list.value.append(value)
        else:
            feature.int64_list.value.extend(np.array(value, ndmin=1).tolist())
    return example.SerializeToString(deterministic=True)


def write_records(path, records):
    """Writes serialized records to a new TFRecord file, atomically."""
    with (
        atomic_write(path) as partial,
        tf.io.TFRecordWriter(str(partial)) as writer,
    ):
        for record in records:
            writer.write(record)


class RecordFiles:
    """The records of several files, numbered from 0 across all files.

    They can take the place of `LabeledImages`, but stay in the files. In a
    record, `label_keys` name int64 labels in [0, num_classes), and `image_keys`
    name images, bytes of uint8 pixels, of one `shape` (height, width, depth).
    Raises UserError if a file is damaged or does not have such records.
    """

    class_names = shape = None

    def __init__(self, paths, label_keys, image_keys, num_classes):
        self.num_classes, self.fingerprints = num_classes, {}
        self._label_keys, self._image_keys = label_keys, image_keys
        self._paths, sizes = paths, []
        self._marks = {path: file_mark(path) for path in paths}
        with user_errors(paths[0]), open(paths[0], "rb") as file:
            self._header = file.read(_HEADER_BYTES)
        length = int.from_bytes(self._header[:_LENGTH_BYTES], "little")
        self._frame_bytes = length + FRAME_OVERHEAD
        for path, (size, *_) in self._marks.items():
            sizes.append(size)
            if not size or size % self._frame_bytes:
                raise UserError(
                    f"{path} is empty, cut off or damaged, or its images "
                    "differ in size"
                )
        self._ends = np.cumsum([0, *sizes]) // self._frame_bytes
        for end in self._ends[1:]:
            labels, images = self.read([end - 1])
        every = np.arange(len(self))
        self.labels = StoredRows(
            every, labels.shape[1:], np.int32, lambda rows: self.read(rows)[0]
        )
        self.images = StoredRows(
            every, images.shape[1:], np.uint8, lambda rows: self.read(rows)[1]
        )

    def __len__(self):
        return int(self._ends[-1])

    def read(self, indices):
        """Reads and verifies labels int32 [B, keys], images [B, keys, H, W, C].

        With a single key they are [B] and [B, H, W, C].
        """
        integer = tf.io.FixedLenFeature((), tf.int64)
        pixels = tf.io.FixedLenFeature((), tf.string)
        spec = dict.fromkeys((*_SIZE_KEYS, *self._label_keys), integer)
        spec |= dict.fromkeys(self._image_keys, pixels)
        records = [self._record(index) for index in indices]
        with user_errors(self._locate(indices[0])[0]):
            features = tf.io.parse_example(records, spec)
            sizes = np.stack([features[key] for key in _SIZE_KEYS], axis=-1)
            labels = np.stack([features[k] for k in self._label_keys], axis=-1)
            images = tf.stack([features[k] for k in self._image_keys], axis=-1)
            images = tf.io.decode_raw(images, tf.uint8).numpy()
        if self.shape is None:
            self.shape = tuple(sizes[0].tolist())
        last_class = self.num_classes - 1
        is_wrong = (sizes != self.shape).any(axis=1)
        is_wrong |= images.shape[-1] != math.prod(self.shape)
        is_wrong |= ((labels < 0) | (labels > last_class)).any(axis=1)
        is_pair = labels.shape[1] == 2
        if is_pair:
            is_wrong |= labels[:, 0] == labels[:, 1]
        if is_wrong.any():
            path, number = self._locate(indices[np.argmax(is_wrong)])
            kind = "two different labels" if is_pair else "a label"
            raise UserError(
                f"{path}: record {number}: expected images of size "
                f"{self.shape} and {kind} from 0 to {last_class}"
            )
        labels = labels.astype(np.int32)
        images = images.reshape(*images.shape[:2], *self.shape)
        return (labels, images) if is_pair else (labels[:, 0], images[:, 0])

    def _locate(self, index):
        """The file of record `index`, and the record's number in it."""
        place = np.searchsorted(self._ends, index, side="right") - 1
        return self._paths[place], int(index - self._ends[place])

    def _record(self, index):
        path, number = self._locate(index)
        with user_errors(path), open(path, "rb", buffering=0) as file:
            file.seek(number * self._frame_bytes)
            frame = file.read(self._frame_bytes)
            file_mark(path, self._marks[path])
        record = frame[_HEADER_BYTES:-_CRC_BYTES]
        crc = google_crc32c.value(record)
        masked_crc = ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF
        expected = (self._header, masked_crc.to_bytes(_CRC_BYTES, "little"))
        if (frame[:_HEADER_BYTES], frame[-_CRC_BYTES:]) != expected:
            raise UserError(
                f"{path}: record {number} is damaged, cut off or of "
                "another length than the first one"
            )
        return record
