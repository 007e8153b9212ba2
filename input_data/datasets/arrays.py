"""Images and labels in NumPy files."""

import functools
import os
import pathlib

import numpy as np

from common.errors import UserError, user_errors
from input_data.files import find_file, open_file
from input_data.images import labeled_images, make_pipeline, to_integers
from input_data.registry import Split, select
from input_data.stored import blocks, digest, rows_in_file


def load(split, config):
    """The pipeline of one split of the files that `read_arrays` describes."""
    data = read_arrays(config.data_dir, split is not Split.TEST)
    is_part = split is Split.TEST and len(data) > config.eval_size
    order = None
    if split.is_held_out or is_part:
        # Arrays are often sorted by class; shuffled, any part has all classes.
        order = np.random.default_rng(0).permutation(len(data))
        data = data[order]
    if split.is_held_out:
        data.fingerprints["divided_for_validation"] = digest(data.labels)[:16]
    data = select(split, data)
    # Those of an evaluation, which has the last images.
    rows = None if order is None else tuple(order[-len(data) :].tolist())
    return make_pipeline(data, config, rows=rows)


def read_arrays(data_dir, training):
    """Reads the training or the test images as `LabeledImages`.

    In `data_dir`, x_train.npy and x_test.npy are the images, uint8 [N, H, W] or
    [N, H, W, C]. The labels y_train.npy and y_test.npy are class indices [N] or
    [N, 1], or k-hot [N, classes] for any number of classes. Files can be
    gzipped, as .npy.gz. The lines of class_names.txt name the classes. Without
    it, their number is that of k-hot columns, or 1 + the largest class index.
    """
    folder, part = pathlib.Path(data_dir), "train" if training else "test"
    path, images = _read(folder, f"x_{part}")
    images = images[..., np.newaxis] if images.ndim == 3 else images
    images, labels = _rows(path, images), _read_labels(folder, part)
    names_path, names = folder / "class_names.txt", None
    if os.path.lexists(names_path):
        with user_errors(find_file(folder, names_path.name)):
            lines = names_path.read_text("utf-8-sig").rstrip().splitlines()
        names, num_classes = [line.strip() for line in lines], len(lines)
        if len(set(names)) < num_classes:
            raise UserError(f"{names_path} has the same name twice")
        if (last := _largest(labels)) >= num_classes:
            raise UserError(f"y_{part}.npy: {names_path} has no class {last}")
    elif labels.shape[1:] not in ((), (1,)):
        num_classes = labels.shape[1]
    else:
        num_classes = 1 + max(
            _largest(_read_labels(folder, part))
            for part in ("train", "test")
            if any(folder.glob(f"y_{part}.npy*"))
        )
    return labeled_images(path, images, labels, num_classes, names)


def _read(folder, name):
    """The path and the array of a file; only a .npy.gz is unpacked."""
    path = find_file(folder, f"{name}.npy", f"{name}.npy.gz")
    with open_file(path) as file:
        if path.suffix == ".gz":
            return path, np.lib.format.read_array(file, allow_pickle=False)
        return path, np.lib.format.open_memmap(path, mode="r")


def _read_labels(folder, part):
    path, labels = _read(folder, f"y_{part}")
    return _rows(path, labels, functools.partial(to_integers, path))


def _rows(path, array, convert=np.asarray):
    """`StoredRows` of a mapped array in C order, else the converted array."""
    if array.ndim == 0 or 0 in array.shape[1:]:
        raise UserError(f"{path} has no values [N, ...] but {array.shape}")
    has_rows = isinstance(array, np.memmap) and array.flags.c_contiguous
    return rows_in_file(path, array, convert) if has_rows else convert(array)


def _largest(labels):
    return max((int(block.max()) for block in blocks(labels)), default=0)
