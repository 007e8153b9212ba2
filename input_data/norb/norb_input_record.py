"""The reference's smallNORB records: names, features, reading, writing.

A record is a `tf.train.Example` with image_raw (the bytes of [2, 96, 96], the
two cameras one after the other), label, height, width, depth (int64) and meta
(four int64: instance 0 to 9, elevation 0 to 8, azimuth 0 to 34 in steps of
two, lighting 0 to 5).
"""

import dataclasses

import numpy as np
import tensorflow as tf

from common import durable
from common.errors import UserError

NUM_CLASSES = 5
IMAGE_SIZE = 96
DEPTH = 2
_IMAGE_BYTES = DEPTH * IMAGE_SIZE * IMAGE_SIZE
_NUM_META = 4
_BATCH_SIZE = 512
_FEATURES = {
    "image_raw": tf.io.FixedLenFeature([], tf.string),
    "label": tf.io.FixedLenFeature([], tf.int64),
    "height": tf.io.FixedLenFeature([], tf.int64),
    "width": tf.io.FixedLenFeature([], tf.int64),
    "depth": tf.io.FixedLenFeature([], tf.int64),
}


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
    features = {
        name: tf.train.Feature(int64_list=tf.train.Int64List(value=values))
        for name, values in numbers.items()
    }
    features["image_raw"] = tf.train.Feature(
        bytes_list=tf.train.BytesList(value=[image.tobytes()])
    )
    example = tf.train.Example(features=tf.train.Features(feature=features))
    return example.SerializeToString(deterministic=True)


def read_records(path):
    """Reads a record file.

    Args:
      path: `pathlib.Path` of the file.

    Returns:
      Pair of images, uint8 [N, 2, 96, 96], and labels, int64 [N].

    Raises:
      UserError: naming the file, if it cannot be read, is empty, cut off or
        damaged, or its records are not smallNORB's.
    """
    images, labels = [], []
    dataset = tf.data.TFRecordDataset(str(path)).batch(_BATCH_SIZE)
    try:
        for records in dataset:
            parsed = {
                name: values.numpy()
                for name, values in tf.io.parse_example(
                    records, _FEATURES
                ).items()
            }
            _check(path, parsed)
            content = b"".join(parsed["image_raw"])
            images.append(
                np.frombuffer(content, np.uint8).reshape(
                    -1, DEPTH, IMAGE_SIZE, IMAGE_SIZE
                )
            )
            labels.append(parsed["label"])
    except tf.errors.DataLossError as error:
        raise UserError(
            f"{path} is cut off, damaged or not a record file: {error.message}"
        ) from None
    # TensorFlow quotes the record, which may not be text.
    except (tf.errors.InvalidArgumentError, UnicodeDecodeError):
        raise UserError(
            f"{path} has records that are not smallNORB's: each must be an "
            f"Example with one value for {', '.join(_FEATURES)}"
        ) from None
    except tf.errors.OpError as error:
        raise UserError(f"{path} cannot be read: {error.message}") from None
    if not images:
        raise UserError(f"{path} is empty: it has no records")
    return np.concatenate(images), np.concatenate(labels)


def _check(path, parsed):
    for name, wanted in (
        ("height", IMAGE_SIZE),
        ("width", IMAGE_SIZE),
        ("depth", DEPTH),
    ):
        wrong = parsed[name][parsed[name] != wanted]
        if len(wrong):
            raise UserError(
                f"{path} has a record with {name} {wrong[0]}: smallNORB has "
                f"{IMAGE_SIZE}x{IMAGE_SIZE} pixels from {DEPTH} cameras"
            )
    sizes = {len(image) for image in parsed["image_raw"]}
    if sizes != {_IMAGE_BYTES}:
        raise UserError(
            f"{path} has an image_raw of {min(sizes - {_IMAGE_BYTES})} bytes, "
            f"expected {_IMAGE_BYTES}"
        )
    wrong = parsed["label"][
        (parsed["label"] < 0) | (parsed["label"] >= NUM_CLASSES)
    ]
    if len(wrong):
        raise UserError(
            f"{path} has the label {wrong[0]}: labels of smallNORB are 0 to "
            f"{NUM_CLASSES - 1}"
        )
