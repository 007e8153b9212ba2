"""Image classification sets of TensorFlow Datasets (TFDS)."""

import contextlib
import urllib.error
import urllib.request

import numpy as np
import tensorflow as tf
from absl import logging

from common.errors import UserError, reading
from input_data.images import labeled_images, make_pipeline
from input_data.registry import TFDS_PREFIX, Split, select
from input_data.transforms import resize

_PROBE_URL = "https://storage.googleapis.com"
_PROBE_SECONDS = 8


def load(split, config):
    """The pipeline of one split of the set tfds:NAME, see docs/data.md."""
    name = config.dataset_name.removeprefix(TFDS_PREFIX)
    builder = _open(name, config.data_dir)
    splits = builder.info.splits
    test_name = next((n for n in ("test", "validation") if n in splits), None)
    is_test = split is Split.TEST
    part = test_name if is_test and test_name else "train"
    data = _read(builder, part, config.image_size, config.resize)
    # Another version of the set may end with other images.
    marks, digest = data.fingerprints, f"{builder.info.full_name}:{len(data)}"
    if test_name is None:
        marks["divided_for_test"] = digest
        data = select(Split.VALID_TEST if is_test else Split.VALID_TRAIN, data)
    if split.is_held_out:
        marks["divided_for_validation"] = digest
    data = select(split, data)
    if config.image_size is not None:  # resized, they have another digest
        marks.pop("validation_images", None)
    return make_pipeline(data, config)


def read(name, training):
    """The training or test `LabeledImages` of a set with one image size."""
    return _read(_open(name), "train" if training else "test")


def read_smallnorb(training):
    """Reads smallnorb from TFDS, in the order in which TFDS stores examples.

    Returns images uint8 [N, 2, 96, 96], labels [N] and meta [N, 4]: instance,
    elevation, azimuth, lighting.
    """
    builder = _open("smallnorb")
    with reading(builder.data_dir):
        dataset = builder.as_dataset(split="train" if training else "test")
        arrays = _arrays(dataset)
    images = np.stack([arrays["image"], arrays["image2"]], axis=1)
    names = ("instance", "label_elevation", "label_azimuth", "label_lighting")
    meta = np.stack([arrays[name] for name in names], axis=1)
    meta[:, 2] *= 2  # TFDS numbers azimuths 0 to 17; the files have 0 to 34.
    return images[..., 0], arrays["label_category"], meta


def _open(name, data_dir=None):
    """The TFDS builder of a set, which is downloaded if needed."""
    # Imported here, as other data sets do not need it.
    import tensorflow_datasets

    logging.set_verbosity(logging.ERROR)  # TFDS warns of sets to download.
    with reading(f"--dataset=tfds:{name}"):
        builder = tensorflow_datasets.builder(
            name, data_dir=data_dir, try_gcs=False
        )
        if builder.is_prepared():
            return builder
    with reading(f"TFDS cannot download {name} (add --data_dir?)"):
        # Without a network TFDS tries for minutes. Any answer proves a network.
        with contextlib.suppress(urllib.error.HTTPError):
            urllib.request.urlopen(_PROBE_URL, timeout=_PROBE_SECONDS).close()
        builder.download_and_prepare()
    return builder


def _read(builder, split_name, image_size=None, method=None):
    """The `LabeledImages` of a split, resized if there is a size."""

    def resize_image(image):
        return resize(image, size, method or "pad")

    def prepare(example):
        image = example["image"]
        if image.shape[:2] != size:
            image = tf.numpy_function(resize_image, [image], tf.uint8)
        return image, example["label"]

    with reading(builder.data_dir):
        features = builder.info.features
        if not {"image", "label"} <= set(features):
            raise UserError(f"tfds:{builder.name} has no image with a label")
        size, label = features["image"].shape[:2], features["label"]
        if image_size is not None:
            size = (image_size, image_size)
        if None in size:
            raise UserError(
                f"--dataset=tfds:{builder.name} has images of many sizes: add "
                "--image_size"
            )
        dataset = builder.as_dataset(split=split_name)
        arrays = _arrays(dataset.map(prepare, tf.data.AUTOTUNE))
        classes = (label.num_classes, tuple(label.names))
    return labeled_images(builder.data_dir, *arrays, *classes)


def _arrays(dataset):
    """All elements of a `tf.data.Dataset`, as one structure of arrays."""
    (everything,) = dataset.batch(len(dataset)).as_numpy_iterator()
    return everything
