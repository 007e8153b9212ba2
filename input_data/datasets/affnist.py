"""affNIST: MNIST under random affine transformations, on 40x40 pixels.

The files: https://www.cs.toronto.edu/~tijmen/affNIST/ (a struct affNISTdata
with image uint8 [1600, N], each column an image row by row, and label_int
[1, N]). affnist_generate.py makes files of the same form.
"""

import os

import numpy as np

from input_data.dataset import DataSet
from input_data.formats.arrays import read_labels
from input_data.formats.files import listing, paths_in, require_folder
from input_data.formats.matlab import read_mat, write_mat
from input_data.images import LabelledImages, make_pipeline
from input_data.memory import COPIES, require_memory
from input_data.splits import Split
from old.errors import UserError

NUM_CLASSES = 10
IMAGE_SIZE = 40
STRUCT_NAME = "affNISTdata"
# The official names, each a file .mat or a folder _batches of such files.
_NAMES = {
    Split.TRAIN: "training_and_validation",
    Split.TEST: "test",
    Split.VALID_TRAIN: "training",
    Split.VALID_TEST: "validation",
}


# Images of a .mat file: its struct has at most 2**32 bytes, an image with its
# labels 1,611.
LARGEST_FILE = 2_600_000


def load(split, options):
    """The pipeline of one split, by the official names of its files.

    The paper's section 5.2 trains on MNIST digits that are shifted on 40x40
    pixels (--dataset=mnist --shift=6 --pad=6), and takes only the test images
    from here.
    """
    if options.data_dir is None:
        raise UserError(
            "--dataset=affnist needs --data_dir, the folder with test.mat and "
            "so on: the official files, or those that "
            "input_data/affnist/affnist_generate.py makes from MNIST"
        )
    return make_pipeline(_read(_find(options.data_dir, split)), options)


def _read(paths):
    """The images of all files, in memory once."""
    parts, num_bytes = [], 0
    for path in paths:
        parts.append(read_file(path))
        num_bytes += parts[-1].images.nbytes
        require_memory(
            COPIES * num_bytes, "--dataset=affnist", "name other files"
        )
    return LabelledImages(
        np.concatenate([part.images for part in parts]),
        np.concatenate([part.labels for part in parts]),
        NUM_CLASSES,
    )


def file_name(split):
    """The name of the file of a `Split`."""
    return f"{_NAMES[split]}.mat"


def read_file(path):
    """Reads an affNIST file.

    Args:
      path: path of the .mat file.

    Returns:
      `LabelledImages`, uint8 [N, 40, 40, 1].

    Raises:
      UserError: naming the file, if it cannot be read, is damaged, or does
        not hold affNIST.
    """
    fields = read_mat(path).get(STRUCT_NAME)
    if not isinstance(fields, dict) or not {"image", "label_int"} <= set(
        fields
    ):
        raise UserError(
            f"{path} is not an affNIST file: it needs a struct {STRUCT_NAME} "
            "with the fields image and label_int"
        )
    images, labels = fields["image"], fields["label_int"]
    if images.dtype != np.uint8 or images.shape != (
        IMAGE_SIZE * IMAGE_SIZE,
        labels.size,
    ):
        raise UserError(
            f"{path} has images {images.dtype} of the shape {images.shape} "
            f"and {labels.size} labels; expected uint8 [{IMAGE_SIZE**2}, N] "
            "and N labels"
        )
    return LabelledImages(
        images.T.reshape(-1, IMAGE_SIZE, IMAGE_SIZE, 1),
        read_labels(path, labels, 0, NUM_CLASSES - 1),
        NUM_CLASSES,
    )


def write_file(path, data):
    """Writes an affNIST file.

    Args:
      path: `pathlib.Path` of the .mat file.
      data: `LabelledImages`, uint8 [N, 40, 40, 1].

    Raises:
      UserError: if the file is there already or cannot be written; then
        nothing of it is left.
    """
    labels = np.asarray(data.labels, np.uint8)
    one_of_n = np.eye(NUM_CLASSES, dtype=np.uint8)[labels]
    fields = {
        "image": data.images.reshape(len(data), -1).T,
        "label_one_of_n": one_of_n.T,
        "label_int": labels[np.newaxis],
    }
    write_mat(path, STRUCT_NAME, fields)


def _find(data_dir, split):
    folder = require_folder(data_dir)
    path = folder / file_name(split)
    if os.path.isfile(path):
        return [path]
    batches = folder / f"{_NAMES[split]}_batches"
    if os.path.isdir(batches):
        paths = [p for p in paths_in(batches) if p.suffix == ".mat"]
        if paths:
            return paths
    raise UserError(
        f"--data_dir={data_dir} has neither {path.name} nor .mat files in a "
        f"folder {batches.name}; it has: {listing(folder)}"
    )


DATA_SET = DataSet(load, two_targets=False, centred=True)
