"""MNIST: from its idx files, the reference's record files, or TFDS."""

from input_data.dataset import DataSet
from input_data.datasets import mnist_record_files, tfds_images
from input_data.formats.arrays import read_labels
from input_data.formats.files import find
from input_data.formats.idx import read_idx
from input_data.formats.mnist_records import NUM_CLASSES
from input_data.images import (
    SINGLE_SHIFT,
    LabelledImages,
    make_pipeline,
)
from input_data.splits import MAX_HELD_OUT, Split, select
from old.errors import UserError


def load(split, options):
    """The pipeline of one split.

    `data_dir` names record files, see `mnist_record_files`, or else holds the
    idx files, plain or gzipped, which are also taken beside records that are
    padded otherwise; without it, TFDS's mnist.
    """
    hint = ""
    if options.data_dir is not None:
        try:
            from_records = mnist_record_files.find(split, options)
        except mnist_record_files.OtherPaddingError as other:
            if options.num_targets == 2:  # of pairs there are no idx files
                raise
            hint = f". {other}"
        else:
            if from_records is not None:
                return from_records
            hint = mnist_record_files.hint(split, options)
    data = read_split(split, options.data_dir, hint)
    return make_pipeline(data, options, SINGLE_SHIFT)


def read_split(split, data_dir, hint=""):
    """Reads the images and labels of one split.

    Args:
      split: `Split`.
      data_dir: path of the folder with the idx files, or None for TFDS.
      hint: string, what to say besides if there are no such files.

    Returns:
      `LabelledImages`.

    Raises:
      UserError: if files are missing, damaged, or have too few images, or
        TFDS cannot download.
    """
    data = read_mnist(data_dir, split is not Split.TEST, hint)
    return select(split, data, MAX_HELD_OUT)


def read_mnist(data_dir, training, hint=""):
    """Reads the 60,000 training or the 10,000 test images; see `read_split`."""
    if data_dir is None:
        return tfds_images.read("mnist", training, NUM_CLASSES)
    paths = [
        find(data_dir, name, f"{name}.gz", hint=hint)
        for name in (
            f"{'train' if training else 't10k'}-{content}-ubyte"
            for content in ("images-idx3", "labels-idx1")
        )
    ]
    images = read_idx(paths[0], num_axes=3)
    labels = read_idx(paths[1], num_axes=1)
    if len(images) != len(labels):
        raise UserError(
            f"{paths[0]} has {len(images)} images but {paths[1]} has "
            f"{len(labels)} labels"
        )
    labels = read_labels(paths[1], labels, 0, NUM_CLASSES - 1)
    return LabelledImages(images[..., None], labels, NUM_CLASSES)


DATA_SET = DataSet(load, centred=True)
