"""Images and labels in NumPy files."""

import hashlib
import pathlib

import numpy as np

from common.errors import UserError, reading
from input_data.features import DIVIDED_FOR_VALIDATION
from input_data.files import find, labelled_images, open_file
from input_data.images import make_pipeline
from input_data.registry import Split, select


def load(split, config):
    """The pipeline of one split; `config.data_dir` is described below.

    Its spec's `split_fingerprints` has a digest of the labels of which
    validation holds out some.
    """
    if config.data_dir is None:
        raise UserError(
            "--dataset=arrays needs --data_dir, a folder with x_train.npy, "
            "y_train.npy, x_test.npy and y_test.npy"
        )
    data = read_arrays(config.data_dir, split is not Split.TEST)
    is_part = split is Split.TEST and len(data) > config.eval_size
    if split.is_held_out or is_part:
        # Arrays are often sorted by class: a part of them has all classes.
        data = data[np.random.default_rng(0).permutation(len(data))]
    fingerprints = {}
    if split.is_held_out:
        digest = hashlib.sha256(data.labels.tobytes()).hexdigest()[:16]
        fingerprints[DIVIDED_FOR_VALIDATION] = digest
    return make_pipeline(
        select(split, data), config, split_fingerprints=fingerprints
    )


def read_arrays(data_dir, training):
    """Reads the training or the test images.

    Args:
      data_dir: path of a folder with x_train.npy and x_test.npy, uint8
        [N, H, W] or [N, H, W, C], and y_train.npy and y_test.npy, integers [N]
        or [N, 1] from 0; each may be gzipped, .npy.gz. To evaluate, the last
        two are enough. class_names.txt, if it exists, has the name of each
        class on a line; else the largest label tells the number of classes.
      training: bool.

    Returns:
      `LabelledImages`.

    Raises:
      UserError: if files are missing, damaged or of another form.
    """
    this, other = ("train", "test") if training else ("test", "train")
    path, images = _read(data_dir, f"x_{this}")
    if images.dtype != np.uint8 or images.ndim not in (3, 4):
        raise UserError(
            f"{path} has {images.dtype} values of shape {images.shape}, "
            "expected uint8 [N, H, W] or [N, H, W, C]"
        )
    labels = _read_labels(data_dir, this)
    names_path, names = pathlib.Path(data_dir, "class_names.txt"), None
    if names_path.exists():
        with reading(names_path):
            lines = names_path.read_text("utf-8-sig").rstrip().splitlines()
        names = tuple(map(str.strip, lines))
        num_classes = len(names)
    else:
        num_classes = 1 + int(labels.max(initial=0))
        if any(pathlib.Path(data_dir).glob(f"y_{other}.npy*")):
            others = _read_labels(data_dir, other)
            num_classes = max(num_classes, 1 + int(others.max(initial=0)))
    if images.ndim == 3:
        images = images[..., np.newaxis]
    return labelled_images(path, images, labels, num_classes, names)


def _read(data_dir, name):
    path = find(data_dir, f"{name}.npy", f"{name}.npy.gz")
    with reading(path), open_file(path) as file:
        return path, np.lib.format.read_array(file, allow_pickle=False)


def _read_labels(data_dir, part):
    path, values = _read(data_dir, f"y_{part}")
    with reading(path):
        labels = values.astype(np.int64)
        if (labels != values).any():
            raise ValueError("labels must be integers")
    return labels
