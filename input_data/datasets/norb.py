"""smallNORB from the reference's records or TFDS: stereo pairs at 48x48.

A record has image_raw (the bytes of [2, 96, 96], one camera after the other),
label, height, width, depth, and meta (instance 0 to 9, elevation 0 to 8,
azimuth 0 to 34 in steps of two, lighting 0 to 5).

Section 7 of the paper: "We resized smallNORB to 48x48 and during training
processed random 32x32 crops of it. We passed the central 32x32 patch during
test."
"""

import numpy as np
import tensorflow as tf

from common.errors import UserError, reading
from input_data.augmentation import distort_colors, random_crop
from input_data.datasets import tfds_images
from input_data.files import find_file
from input_data.images import LabeledImages, StandardizedCrops
from input_data.pipeline import Stream, step_seed
from input_data.records import RecordFiles
from input_data.registry import Split, select

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
    if config.data_dir is None:
        images, labels, meta = tfds_images.read_smallnorb(training)
        images, path = shrink(images), "smallnorb"
    else:
        hint = " (input_data/norb/norb_convert.py writes it)"
        path = find_file(config.data_dir, file_name(training), hint=hint)
        images, labels = read_records(path)
        meta = _read_meta(path) if config.viewpoints else None
    data = LabeledImages(images, labels, NUM_CLASSES, CLASS_NAMES)
    if config.viewpoints:
        angle, _, is_test_of_familiar = config.viewpoints.partition("-")
        wants_familiar = training or bool(is_test_of_familiar)
        chosen = is_familiar(meta, angle) == wants_familiar
        if not chosen.any():
            raise UserError(
                f"{path} has no images for --viewpoints={config.viewpoints}"
            )
        data = data[chosen]
    part = select(split, data)
    return StandardizedCrops(part, CROP_SIZE, distort, config.eval_size)


def is_familiar(meta, angle):
    """Which images [N] show familiar viewpoints: azimuth or elevation."""
    column, values = _FAMILIAR[angle]
    return np.isin(meta[:, column], values)


def file_name(training):
    """The name of the record file of the training or the test images."""
    return "trainduo.tfrecords" if training else "testduo.tfrecords"


def distort(images, step, seed):
    """Random brightness, contrast, crop: uint8 48x48 -> float32 32x32."""
    images = distort_colors(tf.cast(images, tf.float32), step, seed)
    return random_crop(images, CROP_SIZE, step_seed(seed, Stream.CROP, step))


def read_records(path):
    """Images uint8 [N, 48, 48, 2] and labels int32 [N] of a record file."""
    records = RecordFiles([path], ["label"], ["image_raw"], NUM_CLASSES)
    height, width, depth = records.shape
    images, labels = [], []
    num_batches = -(-len(records) // _BATCH_SIZE)
    for numbers in np.array_split(np.arange(len(records)), num_batches):
        batch_labels, batch = records.read(numbers)
        # The shape names the depth last; the pixels have it first.
        images.append(shrink(batch.reshape(-1, depth, height, width)))
        labels.append(batch_labels[0])
    return np.concatenate(images), np.concatenate(labels)


def _read_meta(path):
    """The meta of each record of a file, int64 [N, 4]."""
    spec = {"meta": tf.io.FixedLenFeature((4,), tf.int64)}
    with reading(path):
        records = tf.data.TFRecordDataset(str(path)).batch(_BATCH_SIZE)
        batches = [tf.io.parse_example(batch, spec) for batch in records]
    return np.concatenate([batch["meta"] for batch in batches])


def shrink(images):
    """Resizes uint8 [N, 2, 96, 96] to [N, 48, 48, 2] as TensorFlow 1 does.

    TensorFlow 1 has no half-pixel centers: it takes every second pixel.
    """
    return np.ascontiguousarray(images[:, :, ::2, ::2].transpose(0, 2, 3, 1))
