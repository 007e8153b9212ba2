"""affNIST: MNIST under random affine transformations, on 40x40 pixels.

Format: https://www.cs.toronto.edu/~tijmen/affNIST/, a struct affNISTdata. Each
column of its field `image`, uint8 [1600, N], holds one image, row by row. Its
field `label_int` is [1, N]. `generators.affine` writes such files.
"""

import pathlib

import numpy as np
import scipy.io

from common.errors import reading
from common.files import atomic_write
from input_data.files import find_file, open_file
from input_data.images import labeled_images, make_pipeline
from input_data.registry import Split

NUM_CLASSES = 10
IMAGE_SIZE = 40
_STRUCT = "affNISTdata"
# The official names of a .mat file, or of a folder NAME_batches of such files.
_NAMES = {
    Split.TRAIN: "training_and_validation",
    Split.TEST: "test",
    Split.VALID_TRAIN: "training",
    Split.VALID_TEST: "validation",
}
_HEADER = b"MATLAB 5.0 MAT-file".ljust(116)


def load(split, config):
    """The pipeline of one split, from files with the official names."""
    folder = pathlib.Path(config.data_dir)
    batches = sorted(folder.glob(f"{_NAMES[split]}_batches/*.mat"))
    paths = batches or [find_file(folder, file_name(split))]
    arrays = zip(*map(_read_file, paths), strict=True)
    # A single array would be copied.
    images, labels = (
        np.concatenate(parts) if batches else parts[0] for parts in arrays
    )
    data = labeled_images(paths[0], images, labels, NUM_CLASSES)
    return make_pipeline(data, config)


def file_name(split):
    """The name of the file of a `Split`."""
    return f"{_NAMES[split]}.mat"


def _read_file(path):
    """Images uint8 [N, 40, 40, 1] and labels [N] of a .mat file."""
    with reading(path), open_file(path) as file:
        fields = scipy.io.loadmat(file)[_STRUCT][0, 0]
        images = fields["image"].T.reshape(-1, IMAGE_SIZE, IMAGE_SIZE, 1)
        return images, fields["label_int"].reshape(-1)


def write_file(path, data):
    """Writes `LabeledImages`, uint8 [N, 40, 40, 1], as an affNIST file."""
    labels = np.asarray(data.labels, np.uint8)
    fields = {
        "image": data.images.reshape(len(data), -1).T,
        "label_one_of_n": np.eye(NUM_CLASSES, dtype=np.uint8)[labels].T,
        "label_int": labels[np.newaxis],
    }
    with atomic_write(path) as partial:
        scipy.io.savemat(partial, {_STRUCT: fields})
        # Replaces the time in SciPy's header: equal data give equal files.
        with open(partial, "r+b") as file:
            file.write(_HEADER)
