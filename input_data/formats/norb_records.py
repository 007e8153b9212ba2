"""The reference's smallNORB records: names, reading, writing.

A record is a `tf.train.Example` with image_raw (the bytes of [2, 96, 96], the
two cameras one after the other), label, height, width, depth (int64) and meta
(four int64: instance 0 to 9, elevation 0 to 8, azimuth 0 to 34 in steps of
two, lighting 0 to 5).
"""

import dataclasses
import math

import numpy as np
import tensorflow as tf

from input_data.formats.image_records import ImageRecords, Layout
from input_data.memory import COPIES, require_memory
from old import durable
from old.errors import UserError

NUM_CLASSES = 5
IMAGE_SIZE = 96
DEPTH = 2
_LAYOUT = Layout(("label",), ("image_raw",), NUM_CLASSES)
_BATCH_SIZE = 512


@dataclasses.dataclass(frozen=True)
class StereoImages:
    """Images of smallNORB as its files hold them.

    Attributes:
      images: uint8 array [N, 2, 96, 96].
      labels: integer array [N], in [0, 5).
      meta: integer array [N, 4]: instance, elevation, azimuth, lighting.
    """

    images: np.ndarray
    labels: np.ndarray
    meta: np.ndarray


def file_name(training):
    """The name of the record file of the training or the test images."""
    return "trainduo.tfrecords" if training else "testduo.tfrecords"


def write_records(path, data):
    """Writes a record file.

    Args:
      path: `pathlib.Path` of the file.
      data: `StereoImages`.

    Raises:
      UserError: if the file is there already or cannot be written; then
        nothing of it is left.
    """
    with (
        durable.whole_file(path) as partial,
        tf.io.TFRecordWriter(str(partial)) as writer,
    ):
        for image, label, meta in zip(
            data.images, data.labels, data.meta, strict=True
        ):
            writer.write(_encode(image, label, meta))


def _encode(image, label, meta):
    depth, height, width = image.shape
    numbers = {
        "label": [label],
        "height": [height],
        "width": [width],
        "depth": [depth],
        "meta": meta,
    }
    example = tf.train.Example()
    features = example.features.feature
    for name, values in numbers.items():
        features[name].int64_list.value.extend(values)
    features["image_raw"].bytes_list.value.append(image.tobytes())
    return example.SerializeToString(deterministic=True)


def read_records(path):
    """Reads a record file.

    Args:
      path: `pathlib.Path` of the file.

    Returns:
      Pair of images, uint8 [N, 2, 96, 96], and labels, int32 [N].

    Raises:
      UserError: naming the file, if it cannot be read, is empty, cut off or
        damaged, or its records are not smallNORB's.
    """
    records = ImageRecords([path], _LAYOUT)
    if records.shape != (IMAGE_SIZE, IMAGE_SIZE, DEPTH):
        height, width, depth = records.shape
        raise UserError(
            f"{path} has images of {height}x{width} from {depth} cameras: "
            f"smallNORB has {IMAGE_SIZE}x{IMAGE_SIZE} pixels from {DEPTH}"
        )
    shape = len(records), DEPTH, IMAGE_SIZE, IMAGE_SIZE
    require_memory(COPIES * math.prod(shape), str(path), "is it smallNORB?")
    images = np.empty(shape, np.uint8)
    labels = np.empty(len(records), np.int32)
    for start in range(0, len(records), _BATCH_SIZE):
        part = slice(start, min(start + _BATCH_SIZE, len(records)))
        (labels[part],), (found,) = records.read(
            np.arange(*part.indices(len(records)))
        )
        # Their sizes are said with the depth last, but stored with it first.
        images[part] = found.reshape(images[part].shape)
    return images, labels
