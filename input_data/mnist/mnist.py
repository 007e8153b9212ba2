"""MNIST: from its idx files, the reference's record files, or TFDS."""

from common.errors import UserError
from input_data.files import listing, require_folder
from input_data.labelled_images import (
    SINGLE_SHIFT,
    LabelledImages,
    make_pipeline,
)
from input_data.mnist import mnist_input_record
from input_data.mnist.idx import read_idx
from input_data.mnist.records import NUM_CLASSES
from input_data.splits import MAX_HELD_OUT, Split, select
from input_data.tfds import tfds_images

_FILE_PREFIX = {True: "train", False: "t10k"}


def load(split, options):
    """The pipeline of one split of MNIST.

    Args:
      split: `Split`.
      options: `registry.Options`; `data_dir` names record files, see
        `mnist_input_record`, or else holds the idx files, plain or gzipped;
        without it, TFDS's mnist.

    Returns:
      `Pipeline`.

    Raises:
      UserError: if files are missing or damaged, or TFDS cannot download.
    """
    advice = ""
    if options.data_dir is not None:
        from_records = mnist_input_record.find(split, options)
        if from_records is not None:
            return from_records
        advice = mnist_input_record.advice(split, options)
    data = read_split(split, options.data_dir, advice)
    return make_pipeline(data, options, SINGLE_SHIFT)


def read_split(split, data_dir, advice=""):
    """Reads the images and labels of one split.

    Args:
      split: `Split`.
      data_dir: path of the folder with the idx files, or None for TFDS.
      advice: string, what to say besides if there are no such files.

    Returns:
      `LabelledImages`.

    Raises:
      UserError: if files are missing, damaged, or have too few images, or
        TFDS cannot download.
    """
    data = read_mnist(data_dir, split is not Split.TEST, advice)
    if split.is_held_out:
        _require_more_than_held_out(data, data_dir)
    return select(split, train=data, test=data, num_held_out=MAX_HELD_OUT)


def read_mnist(data_dir, training, advice=""):
    """Reads the images and labels of MNIST.

    Args:
      data_dir: path of the folder with the idx files, or None for TFDS.
      training: bool, the 60,000 training or the 10,000 test images.
      advice: string, what to say besides if there are no such files.

    Returns:
      `LabelledImages`.

    Raises:
      UserError: if files are missing, damaged, empty or do not fit together.
    """
    if data_dir is None:
        return tfds_images.read(
            "mnist", "train" if training else "test", NUM_CLASSES
        )
    prefix = _FILE_PREFIX[training]
    images_path = _find(data_dir, f"{prefix}-images-idx3-ubyte", advice)
    labels_path = _find(data_dir, f"{prefix}-labels-idx1-ubyte", advice)
    images = read_idx(images_path, num_axes=3)
    labels = read_idx(labels_path, num_axes=1)
    if len(images) != len(labels):
        raise UserError(
            f"{images_path} has {len(images)} images but {labels_path} has "
            f"{len(labels)} labels"
        )
    if not len(images):
        raise UserError(f"{images_path} has no images")
    if labels.max() >= NUM_CLASSES:
        raise UserError(
            f"{labels_path} has the label {labels.max()}: labels of MNIST are "
            f"0 to {NUM_CLASSES - 1}"
        )
    return LabelledImages(images[..., None], labels, NUM_CLASSES)


def _find(data_dir, name, advice):
    """The path of an idx file: plain, or else gzipped."""
    folder = require_folder(data_dir)
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise UserError(
        f"--data_dir={data_dir} has neither {name} nor {name}.gz; it has: "
        f"{listing(folder)}{advice}"
    )


def _require_more_than_held_out(data, data_dir):
    if len(data) <= MAX_HELD_OUT:
        raise UserError(
            f"--validate holds out {MAX_HELD_OUT} training images, but "
            f"--data_dir={data_dir} has only {len(data)}"
        )
