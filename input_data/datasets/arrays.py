"""Arrays of one's own: images and labels that `numpy.save` wrote."""

import hashlib

import numpy as np

from input_data.dataset import DataSet
from input_data.features import DIVIDED_FOR_VALIDATION
from input_data.formats.arrays import read_labels
from input_data.formats.files import find, read_bytes, require_folder
from input_data.formats.npy import read_npy
from input_data.images import LabelledImages, make_pipeline
from input_data.splits import Split, select
from old.errors import UserError
from old.text import listed

_NAMES_FILE = "class_names.txt"
_SUFFIXES = (".npy", ".npy.gz")
_MOST_CLASSES = 10_000
_MOST_BYTES_OF_NAMES = 2**20


def load(split, options):
    """The pipeline of one split of arrays.

    Args:
      split: `Split`.
      options: `Options`; `data_dir` is the folder, see `read_arrays`.

    Returns:
      `Pipeline`, pixels in [0, 1]; its spec's `split_fingerprints` has the digest of the
      labels of which some are held out.

    Raises:
      UserError: naming the folder or file, if one is missing or not as
        `read_arrays` says.
    """
    if options.data_dir is None:
        raise UserError(
            "--dataset=arrays needs --data_dir, a folder with x_train.npy, "
            "y_train.npy, x_test.npy and y_test.npy"
        )
    data = read_arrays(options.data_dir, split is not Split.TEST)
    is_part = split is Split.TEST and len(data) > options.eval_size
    if split.is_held_out or is_part:
        # Arrays are often sorted by class: a part of them shall have all.
        data = data[np.random.default_rng(0).permutation(len(data))]
    split_fingerprints = {}
    if split.is_held_out:
        digest = hashlib.sha256(data.labels.tobytes()).hexdigest()[:16]
        split_fingerprints[DIVIDED_FOR_VALIDATION] = digest
    return make_pipeline(
        select(split, data), options, split_fingerprints=split_fingerprints
    )


def read_arrays(data_dir, training):
    """Reads the training or the test images.

    Args:
      data_dir: path of a folder with x_train.npy and x_test.npy, uint8
        [N, H, W] or [N, H, W, C], and y_train.npy and y_test.npy, integers [N]
        or [N, 1] from 0; each may be gzipped, .npy.gz. To evaluate the last
        two are enough. class_names.txt, if there, has the name of each class
        on a line; else there are as many classes as the largest label says.
      training: bool.

    Returns:
      `LabelledImages`.

    Raises:
      UserError: if files are missing, damaged or of another form.
    """
    part = "train" if training else "test"
    path, images = _read(data_dir, f"x_{part}")
    if images.dtype != np.uint8 or images.ndim not in (3, 4):
        raise UserError(
            f"{path} holds {images.dtype} of the shape {images.shape}: "
            "expected uint8 [N, H, W] or [N, H, W, C], pixels from 0 to 255"
        )
    names = _class_names(data_dir)
    labels = _labels(data_dir, part, names)
    if len(labels) != len(images):
        raise UserError(
            f"{path} has {len(images)} images, but there are {len(labels)} "
            f"labels in y_{part}"
        )
    num_classes = len(names) if names else 1 + labels.max()
    other = "test" if training else "train"
    if not names and _is_there(data_dir, f"y_{other}"):
        others = _labels(data_dir, other, names)
        num_classes = max(num_classes, 1 + others.max())
    if num_classes < 2:
        raise UserError(
            f"the labels in {data_dir} are all 0: two or more classes are "
            "needed, with numbers from 0"
        )
    images = images.reshape((*images.shape[:3], -1))
    return LabelledImages(images, labels, int(num_classes), names)


def _read(data_dir, name):
    path = find(data_dir, *(name + suffix for suffix in _SUFFIXES))
    return path, read_npy(path)


def _is_there(data_dir, name):
    folder = require_folder(data_dir)
    return any((folder / (name + suffix)).exists() for suffix in _SUFFIXES)


def _labels(data_dir, part, names):
    path, labels = _read(data_dir, f"y_{part}")
    if labels.dtype.kind == "b" or labels.size != len(labels):
        raise UserError(
            f"{path} holds {labels.dtype} of the shape {labels.shape}: "
            "expected the number of the class of each image, from 0"
        )
    most = len(names) if names else _MOST_CLASSES
    return read_labels(path, labels, 0, most - 1)


def _class_names(data_dir):
    path = require_folder(data_dir) / _NAMES_FILE
    if not path.exists():
        return None
    try:
        text = read_bytes(path, _MOST_BYTES_OF_NAMES).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError(f"{path} is not UTF-8") from None
    names = tuple(map(str.strip, text.rstrip().splitlines()))
    if len(names) < 2 or len(set(names)) < len(names) or "" in names:
        found = listed(map(repr, names)) or "of no class"
        raise UserError(
            f"{path} has the names {found}: expected two or more, each once, "
            "one to a line"
        )
    return names


DATA_SET = DataSet(load)
