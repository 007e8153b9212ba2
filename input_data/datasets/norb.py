"""smallNORB from the reference's records or TFDS: stereo pairs at 48x48.

The paper's section 7: "We resized smallNORB to 48x48 and during training
processed random 32x32 crops of it. We passed the central 32x32 patch during
test."
"""

import numpy as np
import tensorflow as tf

from input_data.dataset import DataSet
from input_data.datasets import tfds_images
from input_data.formats.files import find
from input_data.formats.norb_records import (
    NUM_CLASSES,
    file_name,
    read_records,
)
from input_data.images import LabelledImages, StandardizedCrops, distort_colours
from input_data.randomness import Stream, step_seed
from input_data.splits import Split, select
from input_data.transforms.photo_distortion import random_crop

CLASS_NAMES = ("animal", "human", "airplane", "truck", "car")
RESIZED = 48
CROP_SIZE = (32, 32)
_HINT = (
    ". input_data/norb/norb_convert.py makes it from the original files or "
    "from TFDS."
)


def load(split, options):
    """The pipeline of one split, the two cameras as two channels.

    `data_dir` holds trainduo.tfrecords and testduo.tfrecords; without it,
    TFDS's smallnorb. Training distorts brightness and contrast of the 48x48
    images and crops 32x32 pixels at random; evaluation crops the middle.
    """
    training = split is not Split.TEST
    if options.data_dir is None:
        data = tfds_images.read_smallnorb(training)
        images, labels = data.images, data.labels
    else:
        path = find(options.data_dir, file_name(training), hint=_HINT)
        images, labels = read_records(path)
    data = LabelledImages(shrink(images), labels, NUM_CLASSES, CLASS_NAMES)
    part = select(split, data)
    return StandardizedCrops(part, CROP_SIZE, distort, options.eval_size)


def distort(images, step, seed):
    """Brightness, contrast, crop: uint8 48x48 -> float32 32x32."""
    images = distort_colours(tf.cast(images, tf.float32), step, seed)
    return random_crop(images, CROP_SIZE, step_seed(seed, Stream.CROP, step))


def shrink(images):
    """Depth-first 96x96 -> channels-last 48x48, as TensorFlow 1 resizes.

    The legacy bilinear resize takes its samples at output position times
    scale, without half-pixel centres: here at every second pixel.

    Args:
      images: uint8 array [N, 2, 96, 96].

    Returns:
      uint8 array [N, 48, 48, 2].
    """
    return np.ascontiguousarray(images[:, :, ::2, ::2].transpose(0, 2, 3, 1))


DATA_SET = DataSet(load, two_targets=False, photograph_size=(RESIZED, RESIZED))
