"""The reference's MNIST record files: their names and their records.

Reader and writer share these functions. A record is a tf.train.Example:

  one digit   height, width, depth, label (int64), image_raw (bytes)
  two digits  height, width, depth, label_1, label_2 (int64), image_raw_1,
              image_raw_2, merged_raw (bytes)

Images are uint8, row by row.
"""

import dataclasses
import os
import pathlib
import re

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from common.errors import UserError
from input_data.files import paths_in

NUM_CLASSES = 10
_SIZE_KEYS = ("height", "width", "depth")
_SHARDS = re.compile(r"(?P<prefix>.+)@(?P<count>[0-9]+)")
_SHARD = re.compile(r"(?P<prefix>.+)-[0-9]{5}-of-(?P<count>[0-9]{5})")


@dataclasses.dataclass(frozen=True)
class Layout:
    """Which keys a record has beside height, width and depth.

    Attributes:
      labels: keys of its labels.
      images: keys of its images.
    """

    labels: tuple[str, ...]
    images: tuple[str, ...]


SINGLE = Layout(("label",), ("image_raw",))
PAIR = Layout(
    ("label_1", "label_2"), ("image_raw_1", "image_raw_2", "merged_raw")
)


def single_name(split, shift):
    """The file name of a split with one digit in each record.

    For the two splits of validation it is the name that the reference's
    reader opens (train_2shifted_mnist_valid.tfrecords); its writer used
    another, see `single_names`.
    """
    base = "train" if split.is_training else "test"
    return (
        f"{base}_{shift}shifted_mnist{'_valid' * split.is_held_out}.tfrecords"
    )


def single_names(split, shift):
    """The file names under which a split may be, the first one first."""
    names = [
        single_name(split, shift),
        # For validation, as the reference's mnist_shift wrote it.
        f"{split.value}_{shift}shifted_mnist.tfrecords",
    ]
    return list(dict.fromkeys(names))


def pairs_name(split, shift):
    """The file name of a split with two digits in each record, unsharded."""
    return f"{pairs_prefix(split)}_{shift}shifted_mnist.tfrecords"


def pairs_prefix(split):
    """How all names of files with two digits begin: they tell the split."""
    return f"multi{split.value}"


def shard_name(name, shard, num_shards):
    """The file name of one shard of `name`."""
    return f"{name}-{shard:05d}-of-{num_shards:05d}"


def names_shards(data_dir):
    """Whether `data_dir` is of the form PREFIX@COUNT, and no folder."""
    return _SHARDS.fullmatch(str(data_dir)) is not None and not os.path.isdir(
        data_dir
    )


def shard_paths(data_dir):
    """The paths of all shards of PREFIX@COUNT.

    Args:
      data_dir: string of that form, such as
        data/multitest_4shifted_mnist.tfrecords@10.

    Returns:
      List of COUNT paths.

    Raises:
      UserError: if COUNT is 0 or files are missing; it lists their names.
    """
    match = _SHARDS.fullmatch(str(data_dir))
    count = int(match["count"])
    if not count:
        raise UserError(f"--data_dir={data_dir} names no files: @0")
    prefix = pathlib.Path(match["prefix"])
    paths = [
        prefix.with_name(shard_name(prefix.name, shard, count))
        for shard in range(count)
    ]
    there = {path.name for path in paths_in(prefix.parent)}
    missing = [path.name for path in paths if path.name not in there]
    if missing:
        others = [
            name
            for name in sharded_names(prefix.parent)
            if name.startswith(f"{prefix}@") and name != f"{prefix}@{count}"
        ]
        raise UserError(
            f"--data_dir={data_dir}: {len(missing)} of {count} files are "
            f"missing in {prefix.parent}: {', '.join(missing)}"
            + (f"; there is {', '.join(others)}" if others else "")
        )
    return paths


def sharded_names(folder):
    """What stands for the shards in a folder.

    Args:
      folder: `pathlib.Path`.

    Returns:
      List of strings PREFIX@COUNT, sorted.

    Raises:
      UserError: if the folder cannot be read.
    """
    matches = [_SHARD.fullmatch(path.name) for path in paths_in(folder)]
    found = {(m["prefix"], int(m["count"])) for m in matches if m}
    return [f"{folder / name}@{count}" for name, count in sorted(found)]


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


def image_shape(record, layout, path):
    """The size of the images of one record.

    Args:
      record: bytes, the first record of a file.
      layout: `Layout`.
      path: path of its file, for the message.

    Returns:
      (height, width, depth).

    Raises:
      UserError: naming the file, if it is not a record of that layout.
    """
    try:
        values = _read_example(record, layout)
        shape = tuple(values[key] for key in _SIZE_KEYS)
        _check_values(values, layout, shape)
    except _RecordError as error:
        raise UserError(f"{path}: record 0 {error}") from None
    return shape


def parse(records, layout, shape, locate):
    """Parses records and checks all of their values.

    Args:
      records: list of N bytes objects.
      layout: `Layout`.
      shape: (height, width, depth) that all images must have.
      locate: function from the place in `records` to (path, number), for
        messages.

    Returns:
      Pair of int32 array [labels, N] and uint8 array [images, N, H, W, C], by
      the layout.

    Raises:
      UserError: naming file and record, if one is not an Example, lacks a
        key, or has a value of another type, size or range.
    """
    try:
        parsed = tf.io.parse_example(records, _features(layout))
    except (tf.errors.InvalidArgumentError, UnicodeDecodeError):
        # The second comes where the message of the first quotes the record.
        _raise_first_fault(records, layout, shape, locate)
        raise
    sizes = np.stack([parsed[key] for key in _SIZE_KEYS], axis=-1)
    labels = np.stack([parsed[key] for key in layout.labels])
    images = [parsed[key].numpy() for key in layout.images]
    num_bytes = int(np.prod(shape))
    if (
        (sizes != shape).any()
        or labels.min() < 0
        or labels.max() >= NUM_CLASSES
        or (len(labels) > 1 and (labels[0] == labels[1]).any())
        or any(len(image) != num_bytes for part in images for image in part)
    ):
        _raise_first_fault(records, layout, shape, locate)
    pixels = np.frombuffer(b"".join(b"".join(part) for part in images), "u1")
    return (
        labels.astype(np.int32),
        pixels.reshape(len(images), len(records), *shape),
    )


def _features(layout):
    integer = tf.io.FixedLenFeature([], tf.int64)
    text = tf.io.FixedLenFeature([], tf.string)
    return {
        **dict.fromkeys((*_SIZE_KEYS, *layout.labels), integer),
        **dict.fromkeys(layout.images, text),
    }


class _RecordError(Exception):
    """What is wrong with a record: the end of a sentence about it."""


def _raise_first_fault(records, layout, shape, locate):
    for place, record in enumerate(records):
        try:
            _check_values(_read_example(record, layout), layout, shape)
        except _RecordError as error:
            path, number = locate(place)
            raise UserError(f"{path}: record {number} {error}") from None


def _read_example(record, layout):
    """The values of one record by key; slow, to name faults."""
    try:
        features = tf.train.Example.FromString(record).features.feature
    except DecodeError:
        raise _RecordError("is not a tf.train.Example") from None
    kinds = dict.fromkeys((*_SIZE_KEYS, *layout.labels), "int64_list")
    kinds |= dict.fromkeys(layout.images, "bytes_list")
    missing = [key for key in kinds if key not in features]
    if missing:
        raise _RecordError(
            f"lacks {', '.join(missing)}; it has "
            f"{', '.join(sorted(features)) or 'nothing'}"
        )
    values = {}
    for key, kind in kinds.items():
        value = getattr(features[key], kind).value
        if len(value) != 1:
            raise _RecordError(
                f"has no single {kind.removesuffix('_list')} value for {key}"
            )
        values[key] = value[0]
    return values


def _check_values(values, layout, shape):
    size = tuple(values[key] for key in _SIZE_KEYS)
    if min(size) < 1:
        raise _RecordError(f"has an image of size {_times(size)}")
    if size != shape:
        raise _RecordError(
            f"has an image of {_times(size)}, but the first one is of "
            f"{_times(shape)}: all must be of one size"
        )
    for key in layout.images:
        if len(values[key]) != np.prod(shape):
            raise _RecordError(
                f"has {len(values[key])} bytes in {key}, expected "
                f"{_times(shape)} = {np.prod(shape)}"
            )
    for key in layout.labels:
        if not 0 <= values[key] < NUM_CLASSES:
            raise _RecordError(
                f"has the {key} {values[key]}: labels are 0 to "
                f"{NUM_CLASSES - 1}"
            )
    labels = [values[key] for key in layout.labels]
    if len(set(labels)) < len(labels):
        raise _RecordError(
            f"has the label {labels[0]} twice: the two must be different"
        )


def _times(size):
    return "x".join(map(str, size))
