"""Image classification sets of TensorFlow Datasets (TFDS)."""

import urllib.error
import urllib.request

import numpy as np
import tensorflow as tf
from absl import logging

from common.errors import UserError, reading
from input_data.features import DIVIDED_FOR_TEST, DIVIDED_FOR_VALIDATION
from input_data.files import labelled_images
from input_data.images import make_pipeline
from input_data.registry import TFDS_PREFIX, Split, select
from input_data.transforms import resize

# Without a network TFDS tries for minutes; it downloads only after this
# address has answered.
_PROBE_URL = "https://storage.googleapis.com"
_PROBE_SECONDS = 8
_BATCH_SIZE = 256
_SPLIT_NAMES = {True: "train", False: "test"}
# TFDS numbers smallNORB's azimuths 0 to 17; the files have 0 to 34.
_AZIMUTH_STEP = 2


def load(split, config):
    """The pipeline of one split of the set `config.dataset`, tfds:NAME.

    Height, width, depth and number of classes are those of the set's info.
    Evaluation uses the split test, or else validation, or else the last fifth
    of train, at most 10,000 images.

    Raises:
      UserError: if there is no such set, it has no labelled images, their
        sizes vary and no `image_size` is given, or it cannot be downloaded.
    """
    builder = _open(config.dataset.removeprefix(TFDS_PREFIX), config.data_dir)
    features = dict(builder.info.features.items())
    label, image = features.get("label"), features.get("image")
    if image is None or not getattr(label, "num_classes", None) or label.shape:
        raise UserError(
            f"--dataset={config.dataset} has no features image and label; it "
            f"has {', '.join(features)}"
        )
    size = (config.image_size,) * 2 if config.image_size else image.shape[:2]
    if None in size:
        raise UserError(
            f"--dataset={config.dataset} has images of many sizes: add "
            "--image_size"
        )
    splits = builder.info.splits
    test_name = next((n for n in ("test", "validation") if n in splits), "")
    is_test = split is Split.TEST
    name = test_name if is_test and test_name else "train"
    classes = (label.num_classes, tuple(label.names))
    data = _read(builder, name, *classes, size)
    # Another version of the set may have other last images.
    fingerprints, digest = {}, f"{builder.info.full_name}:{len(data)}"
    if not test_name:
        fingerprints[DIVIDED_FOR_TEST] = digest
        data = select(Split.VALID_TEST if is_test else Split.VALID_TRAIN, data)
    if split.is_held_out:
        fingerprints[DIVIDED_FOR_VALIDATION] = digest
    return make_pipeline(
        select(split, data), config, split_fingerprints=fingerprints
    )


def read(name, training, num_classes, class_names=None):
    """The `LabelledImages` of train or test of a set, all of one size."""
    builder = _open(name)
    return _read(builder, _SPLIT_NAMES[training], num_classes, class_names)


def read_smallnorb(training):
    """Reads smallnorb in TFDS's order.

    Returns:
      Images uint8 [N, 2, 96, 96], labels [N] and meta [N, 4]: instance,
      elevation, azimuth, lighting.
    """
    builder = _open("smallnorb")
    images, labels, meta = [], [], []
    with reading(builder.data_dir):
        dataset = builder.as_dataset(split=_SPLIT_NAMES[training])
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
    return np.stack(images), np.array(labels), np.array(meta)


def _open(name, data_dir=None):
    """The TFDS builder of a set, which is downloaded if needed."""
    # Imported here, as other data sets do not need it.
    import tensorflow_datasets

    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)  # TFDS warns of sets to download.
    try:
        with reading(f"--dataset=tfds:{name}"):
            builder = tensorflow_datasets.builder(
                name, data_dir=data_dir, try_gcs=False
            )
            if builder.is_prepared():
                return builder
    finally:
        logging.set_verbosity(verbosity)
    if not has_network():
        raise UserError(
            f"TFDS cannot download {name}, as {_PROBE_URL} does not answer: "
            "name its files by --data_dir, or use --dataset=digits"
        )
    with reading(f"TFDS cannot download {name}"):
        builder.download_and_prepare()
    return builder


def has_network():
    """Whether `_PROBE_URL` answers within a few seconds."""
    try:
        urllib.request.urlopen(_PROBE_URL, timeout=_PROBE_SECONDS).close()
    except urllib.error.HTTPError:
        return True  # It answers, although with an error.
    except OSError:
        return False
    return True


def _read(builder, split_name, num_classes, class_names, size=None):
    """The `LabelledImages` of a split, resized if `size` is not theirs."""

    def prepare(example):
        image = example["image"]
        if size is not None and image.shape[:2] != size:
            image = resize(image, size)
        return image, example["label"]

    images, labels = [], []
    with reading(builder.data_dir):
        dataset = builder.as_dataset(split=split_name)
        dataset = dataset.map(prepare, tf.data.AUTOTUNE, deterministic=True)
        for image_batch, label_batch in dataset.batch(_BATCH_SIZE):
            images.append(image_batch.numpy())
            labels.append(label_batch.numpy())
        images, labels = np.concatenate(images), np.concatenate(labels)
    return labelled_images(
        builder.data_dir, images, labels, num_classes, class_names
    )
