"""Reads smallNORB from TFDS."""

import numpy as np

from input_data.norb.norb_input_record import StereoImages
from input_data.tfds.tfds_images import open_prepared

# TFDS numbers the azimuths 0 to 17; the original files and the reference's
# records have them in steps of two, from 0 to 34.
_AZIMUTH_STEP = 2


def read_stereo_images(training):
    """Reads the training or the test images of TFDS's smallnorb.

    Args:
      training: bool.

    Returns:
      `StereoImages`, in TFDS's order.

    Raises:
      UserError: if the set is not there and cannot be downloaded.
    """
    builder = open_prepared("smallnorb")
    images, labels, meta = [], [], []
    dataset = builder.as_dataset(
        split="train" if training else "test", shuffle_files=False
    )
    for example in dataset.as_numpy_iterator():
        cameras = (example["image"], example["image2"])
        images.append(np.stack([camera[..., 0] for camera in cameras]))
        labels.append(example["label_category"])
        meta.append(
            (
                example["instance"],
                example["label_elevation"],
                example["label_azimuth"] * _AZIMUTH_STEP,
                example["label_lighting"],
            )
        )
    return StereoImages(np.stack(images), np.array(labels), np.array(meta))
