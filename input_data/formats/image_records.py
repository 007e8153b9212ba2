"""Records of images: each a tf.train.Example with their size and labels.

Reader and writer share the layouts. Images are uint8, row by row.
"""

import dataclasses
import functools
import math

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from input_data.formats.tfrecords import TFRecordFiles
from old.errors import UserError

_SIZE_KEYS = ("height", "width", "depth")


@dataclasses.dataclass(frozen=True)
class Layout:
    """Which keys a record has beside height, width and depth.

    Attributes:
      labels: keys of its labels.
      images: keys of its images.
      num_classes: int: labels are from 0 to num_classes - 1.
    """

    labels: tuple[str, ...]
    images: tuple[str, ...]
    num_classes: int

    @functools.cached_property
    def kinds(self):
        """The kind of the list that holds the value of each key."""
        integers = dict.fromkeys((*_SIZE_KEYS, *self.labels), "int64")
        return integers | dict.fromkeys(self.images, "bytes")


class ImageRecords:
    """The records of some files, verified and parsed.

    Args:
      paths: paths of the files.
      layout: `Layout`.

    Attributes:
      shape: (height, width, depth) of every image.

    Raises:
      UserError: naming the file, if one is damaged or the first record is not
        of this layout.
    """

    def __init__(self, paths, layout):
        self._files = TFRecordFiles(paths)
        self._layout = layout
        self.shape = None
        (first,) = self._files.read([0])
        self.shape, _, _ = self._parsed(0, first)

    def __len__(self):
        return len(self._files)

    def read(self, indices):
        """Reads some records.

        Args:
          indices: integer array [B].

        Returns:
          Labels int32 [labels, B] and images uint8 [images, B, H, W, C].

        Raises:
          UserError: naming file and record, if one is damaged or different.
        """
        labels = np.empty((len(self._layout.labels), len(indices)), np.int32)
        images = [[] for _ in self._layout.images]
        for place, record in enumerate(self._files.read(indices)):
            _, labels[:, place], found = self._parsed(indices[place], record)
            for part, image in zip(images, found, strict=True):
                part.append(image)
        pixels = b"".join(b"".join(part) for part in images)
        pixels = np.frombuffer(pixels, np.uint8)
        return labels, pixels.reshape(len(images), len(indices), *self.shape)

    def _parsed(self, index, record):
        """Size, labels and images of one record, all checked."""
        try:
            size, labels, images = _read(record, self._layout)
            if self.shape not in (None, size):
                raise _RecordError(
                    f"has an image of {_times(size)}, but the first one is of "
                    f"{_times(self.shape)}: all must be of one size"
                )
        except _RecordError as error:
            path, number = self._files.locate(index)
            raise UserError(f"{path}: record {number} {error}") from None
        return size, labels, images


class Encoder:
    """Serialises records of one layout and image size, many at once.

    Records of one size differ in the bytes of labels and images alone, so
    that one serialised Example serves as the form for all.

    Args:
      layout: `Layout`.
      image_shape: (height, width, depth).
    """

    def __init__(self, layout, image_shape):
        self._layout = layout
        num_bytes = int(np.prod(image_shape))
        features = dict(zip(_SIZE_KEYS, map(_int64, image_shape), strict=True))
        features |= {key: _int64(0) for key in layout.labels}
        features |= {key: _bytes(bytes(num_bytes)) for key in layout.images}
        # A serialised entry ends with its value.
        form, self._ends = b"", {}
        for key in sorted(features):
            form += tf.train.Features(
                feature={key: features[key]}
            ).SerializeToString()
            self._ends[key] = len(form)
        example = tf.train.Example(features=tf.train.Features.FromString(form))
        serialized = example.SerializeToString(deterministic=True)
        prefix = serialized.removesuffix(form)
        self._ends = {key: len(prefix) + end for key, end in self._ends.items()}
        self._form = np.frombuffer(prefix + form, np.uint8)

    def encode(self, labels, images):
        """Serialises N records.

        Args:
          labels: sequence of integer arrays [N], in [0, 127], by the layout.
          images: sequence of uint8 arrays [N, H, W, C], by the layout.

        Returns:
          uint8 array [N, bytes of a record].
        """
        count = len(labels[0])
        rows = np.tile(self._form, (count, 1))
        for key, values in zip(self._layout.labels, labels, strict=True):
            rows[:, self._ends[key] - 1] = values
        for key, values in zip(self._layout.images, images, strict=True):
            flat = values.reshape(count, -1)
            end = self._ends[key]
            rows[:, end - flat.shape[1] : end] = flat
        return rows


def _int64(value):
    return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))


def _bytes(value):
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))


class _RecordError(Exception):
    """What is wrong with a record: the end of a sentence about it."""


def _read(record, layout):
    """Size, labels and images of one record, all checked."""
    try:
        features = tf.train.Example.FromString(record).features.feature
    except DecodeError:
        raise _RecordError("is not a tf.train.Example") from None
    values = []
    for key, kind in layout.kinds.items():
        if key not in features:
            missing = [key for key in layout.kinds if key not in features]
            raise _RecordError(
                f"lacks {', '.join(missing)}; it has "
                f"{', '.join(sorted(features)) or 'nothing'}"
            )
        value = getattr(features[key], f"{kind}_list").value
        if len(value) != 1:
            raise _RecordError(f"has no single {kind} value for {key}")
        values.append(value[0])
    size = tuple(values[:3])
    labels, images = (
        values[3 : -len(layout.images)],
        values[-len(layout.images) :],
    )
    if min(size) < 1:
        raise _RecordError(f"has an image of size {_times(size)}")
    for key, image in zip(layout.images, images, strict=True):
        if len(image) != math.prod(size):
            raise _RecordError(
                f"has {len(image)} bytes in {key}, expected "
                f"{_times(size)} = {math.prod(size)}"
            )
    for key, label in zip(layout.labels, labels, strict=True):
        if not 0 <= label < layout.num_classes:
            raise _RecordError(
                f"has the {key} {label}: labels are 0 to "
                f"{layout.num_classes - 1}"
            )
    if len(set(labels)) < len(labels):
        raise _RecordError(
            f"has the label {labels[0]} twice: the two must be different"
        )
    return size, labels, images


def _times(size):
    return "x".join(map(str, size))
