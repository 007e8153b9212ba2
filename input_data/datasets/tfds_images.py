"""Image classification sets of TensorFlow Datasets (TFDS), in memory."""

import concurrent.futures
import contextlib
import functools
import http.client
import threading
import urllib.error
import urllib.request

import numpy as np
import tensorflow as tf
from absl import logging

from input_data.dataset import DataSet
from input_data.features import DIVIDED_FOR_TEST, DIVIDED_FOR_VALIDATION
from input_data.formats.norb_records import StereoImages
from input_data.images import LabelledImages, make_pipeline
from input_data.memory import COPIES, require_memory
from input_data.splits import Split, select
from input_data.transforms.resizing import resize
from old.errors import UserError
from old.fields import did_you_mean

# TFDS tries for minutes where there is no network, so that it is asked to
# download only after this address has answered.
_PROBE_URL = "https://storage.googleapis.com"
_PROBE_SECONDS = 8
# Opening a set reads a few small files, unless TFDS looks for them elsewhere.
_OPEN_SECONDS = 15
_BATCH_SIZE = 256
_SPLIT_NAMES = {True: "train", False: "test"}
# TFDS numbers smallNORB's azimuths 0 to 17; the original files and the
# reference's records have them in steps of two, from 0 to 34.
_AZIMUTH_STEP = 2


def data_set(name):
    """The `DataSet` of any image classification set of TFDS.

    Args:
      name: string, TFDS's name, which may have a /config and a :version.
    """
    return DataSet(
        functools.partial(load, name),
        resizes=True,
        centred=name.partition(":")[0] == "mnist",
    )


def load(name, split, options):
    """The pipeline of one split of any image classification set of TFDS.

    Height, width, depth and number of classes are those of the set's info.
    Evaluation uses the split test, or else validation, or else the last fifth
    of train, at most 10,000 images.

    Args:
      name: string, as in `data_set`.
      split: `Split`.
      options: `Options`; `data_dir` is TFDS's own folder of prepared sets.

    Returns:
      `Pipeline`.

    Raises:
      UserError: if there is no such set, it is not of labelled images, their
        sizes vary and no `image_size` is given, it cannot be downloaded, or
        does not fit in memory.
    """
    builder = _open_builder(name, options.data_dir)
    features = builder.info.features
    label = _label_feature(builder)
    size = _image_size(builder, options.image_size)
    _prepare(builder)

    available = builder.info.splits
    if "train" not in available:
        raise UserError(
            f"--dataset=tfds:{name} has no split train; it has: "
            f"{', '.join(available) or 'none'}"
        )
    test_name = next((n for n in ("test", "validation") if n in available), "")
    wanted = test_name if split is Split.TEST and test_name else "train"
    count = available[wanted].num_examples
    depth = features["image"].shape[-1]
    num_bytes = count * size[0] * size[1] * depth
    require_memory(COPIES * num_bytes, f"tfds:{name}")
    data = _read_split(
        builder, wanted, label.num_classes, tuple(label.names), size
    )
    # Which images are the last ones, another version of the set may change.
    split_fingerprints, digest = {}, f"{builder.info.full_name}:{count}"
    if not test_name:
        split_fingerprints[DIVIDED_FOR_TEST] = digest
        is_test = split is Split.TEST
        data = select(Split.VALID_TEST if is_test else Split.VALID_TRAIN, data)
    if split.is_held_out:
        split_fingerprints[DIVIDED_FOR_VALIDATION] = digest
    return make_pipeline(
        select(split, data), options, split_fingerprints=split_fingerprints
    )


def read(name, training, num_classes, class_names=None):
    """The images of a set whose shape is known, and whose splits are usual.

    Args:
      name: string, TFDS's name.
      training: bool, the split train, or test.
      num_classes: int.
      class_names: tuple of strings, or None.

    Returns:
      `LabelledImages`.

    Raises:
      UserError: if the set cannot be downloaded.
    """
    builder, split = _open_prepared(name), _SPLIT_NAMES[training]
    return _read_split(builder, split, num_classes, class_names)


def read_smallnorb(training):
    """The training or the test images of smallnorb, in TFDS's order.

    Args:
      training: bool.

    Returns:
      `StereoImages`.

    Raises:
      UserError: if the set is not there and cannot be downloaded.
    """
    images, labels, meta = [], [], []
    builder, split = _open_prepared("smallnorb"), _SPLIT_NAMES[training]
    with _reading(builder):
        dataset = builder.as_dataset(split=split, shuffle_files=False)
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
    _require_images(images, builder, split)
    return StereoImages(np.stack(images), np.array(labels), np.array(meta))


def _open_prepared(name):
    """The TFDS builder of a set, downloaded if need be."""
    builder = _open_builder(name, None)
    _prepare(builder)
    return builder


def _open_builder(name, data_dir):
    # Imported where it is used, for jobs on other data do without it.
    import tensorflow_datasets

    def open_it():
        return tensorflow_datasets.builder(
            name, data_dir=data_dir, try_gcs=False
        )

    try:
        with _without_warnings():
            return _within(_OPEN_SECONDS, open_it)
    except TimeoutError:
        raise UserError(_unavailable(name, "TFDS does not answer")) from None
    except tensorflow_datasets.core.registered.DatasetNotFoundError:
        known = tensorflow_datasets.list_builders(with_community_datasets=False)
        raise UserError(
            f"--dataset=tfds:{name}: TFDS has no set of this name"
            f"{did_you_mean(name, known)}; see "
            "https://www.tensorflow.org/datasets/catalog"
        ) from None
    except Exception as error:
        # Names, configs and versions each fail in a way of their own.
        raise UserError(
            f"--dataset=tfds:{name} cannot be opened: {_first_line(error)}"
        ) from error


@contextlib.contextmanager
def _without_warnings():
    """TFDS warns of every set that is not there yet."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)


def _prepare(builder):
    """Downloads a set that is not there yet."""
    with _without_warnings():
        is_prepared = builder.is_prepared()
    if is_prepared:
        return
    if not has_network():
        reason = f"{_PROBE_URL} does not answer; there may be no network"
        raise UserError(_unavailable(builder.name, reason))
    try:
        builder.download_and_prepare()
    except Exception as error:
        # Whatever a download can meet: hosts, checksums, disks, hand-made
        # files that TFDS wants.
        raise UserError(
            _unavailable(builder.name, _first_line(error))
        ) from error


def has_network():
    """Whether `_PROBE_URL` answers within a few seconds."""

    def probe():
        # urllib goes through the proxy that the environment names, as TFDS.
        try:
            urllib.request.urlopen(_PROBE_URL, timeout=_PROBE_SECONDS).close()
        except urllib.error.HTTPError:
            return True  # an answer all the same
        # A proxy may be named, or answer, otherwise than HTTP has it.
        except (OSError, http.client.HTTPException):
            return False
        return True

    try:
        return _within(_PROBE_SECONDS, probe)
    except TimeoutError:  # looking up a host name knows no timeout
        return False


def _within(seconds, function):
    """The result of function(), or TimeoutError if it takes longer."""
    future = concurrent.futures.Future()

    def run():
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    # An executor's thread would be waited for when the program ends.
    threading.Thread(target=run, daemon=True).start()
    return future.result(seconds)


def _unavailable(name, why):
    return (
        f"the data set {name} is not on this machine and cannot be downloaded "
        f"by TFDS: {why}. Name its files by --data_dir, or train without any "
        "by --dataset=digits."
    )


def _first_line(error):
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _label_feature(builder):
    """The feature of the class, once image and label are known to be there."""
    features = dict(builder.info.features.items())
    label = features.get("label")
    image = features.get("image")
    if (
        not hasattr(label, "num_classes")
        or not label.num_classes
        or label.shape != ()  # several classes of one image
        or image is None
        or len(image.shape) != 3
        or image.shape[-1] is None
        or image.np_dtype != np.uint8
    ):
        raise UserError(
            f"--dataset=tfds:{builder.name} is not a set of labelled images: "
            "it needs a feature image of bytes and a feature label of "
            f"classes; it has: {', '.join(features)}"
        )
    return label


def _image_size(builder, image_size):
    """Height and width that all images are to have."""
    if image_size is not None:
        return image_size, image_size
    height, width, _ = builder.info.features["image"].shape
    if height is None or width is None:
        raise UserError(
            f"--dataset=tfds:{builder.name} has images of many sizes: say by "
            "--image_size, in pixels, to what size to bring them"
        )
    return height, width


def _read_split(builder, split_name, num_classes, class_names, size=None):
    """Reads a split; resizes its images if `size` is not theirs.

    Args:
      builder: prepared TFDS builder.
      split_name: string.
      num_classes: int.
      class_names: tuple of strings, or None.
      size: pair of int, height and width, or None to leave them as they are.

    Returns:
      `LabelledImages`.
    """

    def prepare(example):
        image = example["image"]
        if size is not None and image.shape[:2] != size:
            image = resize(image, size)
        return image, example["label"]

    images, labels = [], []
    with _reading(builder):
        dataset = builder.as_dataset(split=split_name, shuffle_files=False)
        dataset = dataset.map(prepare, tf.data.AUTOTUNE, deterministic=True)
        for image_batch, label_batch in dataset.batch(_BATCH_SIZE):
            images.append(image_batch.numpy())
            labels.append(label_batch.numpy())
    _require_images(images, builder, split_name)
    labels = np.concatenate(labels)
    if labels.min() < 0 or labels.max() >= num_classes:
        raise UserError(
            f"{builder.name} has images without a label in its split "
            f"{split_name}"
        )
    return LabelledImages(
        np.concatenate(images), labels, num_classes, class_names
    )


@contextlib.contextmanager
def _reading(builder):
    """A context in which what cannot be read is an error of the user's."""
    try:
        yield
    except NotImplementedError as error:  # ArrayRecord
        raise UserError(
            f"the files of {builder.name} in {builder.data_dir} are of a "
            f"format that is not read: {_first_line(error)}"
        ) from error
    except tf.errors.OpError as error:
        raise UserError(
            f"the files of {builder.name} in {builder.data_dir} are damaged: "
            f"{_first_line(error)}"
        ) from error


def _require_images(images, builder, split_name):
    if not images:
        raise UserError(
            f"{builder.name} in {builder.data_dir} has no images in its split "
            f"{split_name}"
        )
