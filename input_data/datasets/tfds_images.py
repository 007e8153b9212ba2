"""Image classification sets of TensorFlow Datasets (TFDS)."""

import contextlib
import hashlib
import math
import tempfile
import urllib.error
import urllib.request

import numpy as np
import tensorflow as tf
from absl import logging

from common.errors import UserError, user_errors
from common.files import make_folder
from input_data import stored
from input_data.files import POOL
from input_data.images import LabeledImages, labeled_images, make_pipeline
from input_data.preparation import resize
from input_data.registry import TFDS_PREFIX, Split, select
from input_data.stored import StoredRows, file_digest, kept_rows

_PROBE_URL = "https://storage.googleapis.com"


def load(split, config):
    """The pipeline of one split of the set tfds:NAME, see docs/data.md."""
    name = config.dataset.removeprefix(TFDS_PREFIX)
    builder = _open(name, config.data_dir)
    splits = builder.info.splits
    test_name = next((n for n in ("test", "validation") if n in splits), None)
    is_test = split is Split.TEST
    part = test_name if is_test and test_name else "train"
    folder = config.features_dir or config.summary_dir
    data = _read(builder, part, config.image_size, config.resize, folder)
    # Another version of the set may end with other images.
    marks, digest = data.fingerprints, f"{builder.info.full_name}:{len(data)}"
    if _has_index(builder):  # these files have another order
        digest += ":array_record"
    if config.image_size is not None:  # resized, they have another digest
        marks["validation_images"] = None
    if test_name is None:
        marks["divided_for_test"] = digest
        data = select(Split.VALID_TEST if is_test else Split.VALID_TRAIN, data)
    if split.is_held_out:
        marks["divided_for_validation"] = digest
    data = select(split, data)
    if config.image_size is not None:
        del marks["validation_images"]
    return make_pipeline(data, config)


def read(name, training):
    """The training or test `LabeledImages` of a set with one image size."""
    return _read(_open(name), "train" if training else "test")


def read_smallnorb(training):
    """Images uint8 [N, 2, 96, 96], labels and meta [N, 4] in TFDS's order."""
    builder = _open("smallnorb")
    with user_errors(builder.data_dir):
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
    import tensorflow_datasets as tfds

    logging.set_verbosity(logging.ERROR)  # TFDS warns of sets to download.
    with user_errors(f"--dataset=tfds:{name}"):
        builder = tfds.builder(name, data_dir=data_dir, try_gcs=False)
        if builder.is_prepared():
            return builder
    with user_errors(f"TFDS cannot download {name} (add --data_dir?)"):
        # Without a network TFDS tries for minutes. Any answer proves a network.
        with contextlib.suppress(urllib.error.HTTPError):
            urllib.request.urlopen(_PROBE_URL, timeout=8).close()
        builder.download_and_prepare()
    return builder


def _read(builder, split_name, image_size=None, method=None, folder=None):
    """The `LabeledImages` of a split; large ones stay on disk, in `folder`."""
    with user_errors(builder.data_dir):
        features = builder.info.features
        if not {"image", "label"} <= set(features):
            raise UserError(f"tfds:{builder.name} has no image with a label")
        *size, depth = features["image"].shape
        size = (image_size, image_size) if image_size else tuple(size)
        if None in size:
            raise UserError(
                f"--dataset=tfds:{builder.name} has images of many sizes: add "
                "--image_size"
            )
        shape, method = (*size, depth), method or "pad"

        def fit(image):
            if image.shape[:2] != size:
                image = tf.numpy_function(
                    lambda image: resize(image, size, method), [image], tf.uint8
                )
            return tf.ensure_shape(image, shape)

        def depends_on():
            paths = builder.info.splits[split_name].filepaths
            digests = list(POOL.map(file_digest, paths))
            return repr((digests, shape, method)).encode()

        label = features["label"]
        classes = label.num_classes, tuple(label.names)
        if _has_index(builder):
            rows = _rows_by_index(builder, split_name, shape, fit, depends_on)
            return LabeledImages(*rows, *classes)
        dataset = builder.as_dataset(split=split_name).map(
            lambda example: (fit(example["image"]), example["label"]),
            tf.data.AUTOTUNE,
        )
        if len(dataset) * math.prod(shape) <= stored.MEMORY_BYTES:
            arrays = _arrays(dataset)
        else:
            name = f"images-{hashlib.sha256(depends_on()).hexdigest()[:32]}"
            path = make_folder(folder or tempfile.gettempdir()) / name
            shape = len(dataset), *shape
            print(f"Decoded: {path}, {math.prod(shape) / 1e9:.1f} GB")
            batches = dataset.batch(64).as_numpy_iterator()
            decoded = (images for images, _ in batches)
            images = kept_rows(path, shape, np.uint8, decoded)
            encoded = builder.as_dataset(split=split_name, decoders=_encoded())
            arrays = images, _arrays(encoded.map(lambda x: x["label"]))
    return labeled_images(builder.data_dir, *arrays, *classes)


def _has_index(builder):
    return builder.info.file_format.value == "array_record"


def _encoded():
    """Makes TFDS read the labels of images without decoding the images."""
    from tensorflow_datasets import decode

    return {"image": decode.SkipDecoding()}


def _rows_by_index(builder, split_name, shape, fit, depends_on):
    """Images and labels as `StoredRows` or, of small sets, as arrays."""
    source = builder.as_data_source(split=split_name, decoders=_encoded())
    decode_image = builder.info.features["image"].decode_example

    def describe(rows):
        return depends_on() + rows.tobytes()

    def stored_rows(shape, dtype, convert):
        def read(rows):
            with user_errors(builder.data_dir):
                examples = source.__getitems__(rows.tolist())
                return np.array(list(POOL.map(convert, examples)))

        return StoredRows(np.arange(len(source)), shape, dtype, read, describe)

    images = stored_rows(
        shape, np.uint8, lambda x: fit(decode_image(x["image"])).numpy()
    )
    rows = images, stored_rows((), np.int64, lambda x: x["label"])
    return rows if stored.is_large(images) else map(np.asarray, rows)


def _arrays(dataset):
    """All elements of a `tf.data.Dataset`, as one structure of arrays."""
    (everything,) = dataset.batch(len(dataset)).as_numpy_iterator()
    return everything
