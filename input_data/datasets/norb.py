"""smallNORB from the original files, records or TFDS: stereo pairs at 48x48.

A record of the reference has image_raw (the bytes of [2, 96, 96], one camera
after the other), label, and meta (instance 0 to 9, elevation 0 to 8, azimuth 0
to 34 in steps of two, lighting 0 to 5). As in section 7 of the paper, networks
see random 32x32 crops in training, and central ones in tests.
"""

import pathlib

import numpy as np
import tensorflow as tf

from common.errors import UserError, user_errors
from input_data.augmentation import distort_colors, random_crop
from input_data.datasets import tfds_images
from input_data.files import open_file
from input_data.images import labeled_images
from input_data.photographs import StandardizedCrops
from input_data.pipeline import Stream, step_seed
from input_data.registry import Split, select

# Values of the original files: https://cs.nyu.edu/~ylclab/data/norb-v1.0-small/
_MATRIX_TYPES = {0x1E3D4C55: "u1", 0x1E3D4C54: "<i4"}
CLASS_NAMES = ("animal", "human", "airplane", "truck", "car")
NUM_CLASSES = len(CLASS_NAMES)
CROP_SIZE = (32, 32)
_BATCH_SIZE = 512
# Section 6.1 of "Matrix capsules with EM routing" (Hinton, Sabour, Frosst
# 2018): the column of meta and its familiar values, a third of all.
_FAMILIAR = {
    "azimuth": (2, (30, 32, 34, 0, 2, 4)),  # in tens of degrees
    "elevation": (1, (0, 1, 2)),
}


def load(split, config):
    """The pipeline of one split, with the two cameras as channels."""
    training = split is not Split.TEST
    name = "trainduo.tfrecords" if training else "testduo.tfrecords"
    path = pathlib.Path(config.data_dir or "", name)
    if config.data_dir is not None and path.is_file():
        images, labels, meta = read_records(path)
    else:
        path = config.data_dir or "smallnorb"
        images, labels, meta = _read_originals(config.data_dir, training)
        images = shrink(images)
    data = labeled_images(path, images, labels, NUM_CLASSES, CLASS_NAMES)
    if config.viewpoints:
        angle, _, is_test_of_familiar = config.viewpoints.partition("-")
        column, familiar = _FAMILIAR[angle]
        wants_familiar = training or bool(is_test_of_familiar)
        chosen = np.isin(meta[:, column], familiar) == wants_familiar
        if not chosen.any():
            raise UserError(
                f"{path} has no images for --viewpoints={config.viewpoints}"
            )
        data = data[chosen]
    part = select(split, data)
    return StandardizedCrops(part, CROP_SIZE, distort, config.eval_size)


def distort(images, step, seed):
    """Random brightness, contrast, crop: uint8 48x48 -> float32 32x32."""
    images = distort_colors(tf.cast(images, tf.float32), step, seed)
    return random_crop(images, CROP_SIZE, step_seed(seed, Stream.CROP, step))


def read_records(path):
    """Images uint8 [N, 48, 48, 2], labels [N] and meta [N, 4] of a file."""
    spec = {
        "image_raw": tf.io.FixedLenFeature((), tf.string),
        "label": tf.io.FixedLenFeature((), tf.int64),
        "meta": tf.io.FixedLenFeature((4,), tf.int64),
    }
    batches = []
    with user_errors(path):
        for records in tf.data.TFRecordDataset(str(path)).batch(_BATCH_SIZE):
            values = tf.io.parse_example(records, spec)
            pixels = tf.io.decode_raw(values["image_raw"], tf.uint8).numpy()
            images = shrink(pixels.reshape(-1, 2, 96, 96))
            batches.append((images, values["label"], values["meta"]))
        images, labels, meta = map(np.concatenate, zip(*batches, strict=True))
    return images, labels, meta


def shrink(images):
    """Every second pixel, as TensorFlow 1 resizes: uint8 [N, 48, 48, 2]."""
    return np.ascontiguousarray(images[:, :, ::2, ::2].transpose(0, 2, 3, 1))


def _read_originals(data_dir, training):
    """Images, labels and meta of the original files or TFDS."""
    if data_dir is None:
        return tfds_images.read_smallnorb(training)
    split_name = "training" if training else "testing"
    matrices = []
    for kind in ("dat", "cat", "info"):
        pattern = f"*{split_name}-{kind}.mat"
        path = min(pathlib.Path(data_dir).glob(f"{pattern}*"), default=None)
        if path is None:
            raise UserError(
                f"--data_dir={data_dir} has neither the original file "
                f"{pattern}[.gz] nor trainduo.tfrecords and testduo.tfrecords"
            )
        with open_file(path) as file:
            matrices.append(_decode(file.read()))
    return matrices


def _decode(content):
    # The type of the values, the number of axes, and the length of each axis,
    # of three axes at least.
    kind, num_axes = np.frombuffer(content, "<u4", 2).tolist()
    shape = np.frombuffer(content, "<i4", num_axes, offset=8)
    start = 8 + 4 * max(3, num_axes)
    values = np.frombuffer(content, _MATRIX_TYPES[kind], offset=start)
    return values.reshape(shape)
