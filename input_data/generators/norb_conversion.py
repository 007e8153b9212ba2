"""Makes the reference's smallNORB records from the original files or TFDS.

All of them, or those of some viewpoints, to test a network on viewpoints that
it was not trained on: "Matrix capsules with EM routing" (Hinton, Sabour,
Frosst 2018), section 6.1.
"""

import pathlib

import numpy as np

from input_data.datasets import tfds_images
from input_data.formats.arrays import read_labels
from input_data.formats.files import listing, require_folder
from input_data.formats.norb_matrix import read_matrix
from input_data.formats.norb_records import (
    DEPTH,
    IMAGE_SIZE,
    NUM_CLASSES,
    StereoImages,
    file_name,
    write_records,
)
from old import durable
from old.errors import UserError

# By what is novel: the column of `StereoImages.meta`, and the values of it that
# are familiar, a third of all. Azimuths are in tens of degrees.
_FAMILIAR = {"azimuth": (2, (30, 32, 34, 0, 2, 4)), "elevation": (1, (0, 1, 2))}


def convert(data_dir, output_dir, novel=None):
    """Writes the records of the training and the test images.

    Args:
      data_dir: path of the folder with the original files, or None for TFDS.
      output_dir: path of the folder to write to; made if need be.
      novel: None for all images, or "azimuth" or "elevation": the images of a
        third of them alone, and the test images of the others in the folder
        "novel" in `output_dir`.

    Raises:
      UserError: if the source is missing or damaged, lacks images of the
        viewpoints, the records are there already, or cannot be written.
    """
    familiar = pathlib.Path(output_dir)
    parts = [(familiar, True), (familiar, False)]
    if novel:
        parts.append((familiar / "novel", False))
    for folder, training in parts:
        durable.refuse_existing(folder / file_name(training))
    # Both are read before one is written: what is there is not replaced.
    found = {training: _read(data_dir, training) for training in (True, False)}
    chosen = [found[training] for _, training in parts]
    if novel:
        chosen = [
            _seen_from(data, novel, folder == familiar)
            for data, (folder, _) in zip(chosen, parts, strict=True)
        ]
    for data, (folder, training) in zip(chosen, parts, strict=True):
        durable.remove_leftovers(durable.make_folder(folder))
        path = folder / file_name(training)
        write_records(path, data)
        print(f"{path}: {len(data.labels)} records")


def _seen_from(data, novel, familiar):
    """The images of the familiar viewpoints, or of all others."""
    column, values = _FAMILIAR[novel]
    seen = np.isin(data.meta[:, column], values) == familiar
    if not seen.any():
        name = "familiar" if familiar else "novel"
        raise UserError(f"--novel={novel}: no image has a {name} {novel}")
    return StereoImages(data.images[seen], data.labels[seen], data.meta[seen])


def _read(data_dir, training):
    if data_dir is None:
        return tfds_images.read_smallnorb(training)
    return read_originals(data_dir, training)


def read_originals(folder, training):
    """Reads the three original files of the training or the test images.

    Args:
      folder: path of the folder with the files smallnorb-*-training-dat.mat,
        -cat.mat and -info.mat, or those of testing, plain or gzipped.
      training: bool.

    Returns:
      `StereoImages`.

    Raises:
      UserError: naming the file that is missing, damaged or does not fit.
    """
    split_name = "training" if training else "testing"
    paths = {
        kind: _find(folder, f"*{split_name}-{kind}.mat")
        for kind in ("dat", "cat", "info")
    }
    images, labels, meta = (read_matrix(path) for path in paths.values())
    count = len(images)
    for (kind, path), array, shape in zip(
        paths.items(),
        (images, labels, meta),
        ((count, DEPTH, IMAGE_SIZE, IMAGE_SIZE), (count,), (count, 4)),
        strict=True,
    ):
        if array.shape != shape:
            raise UserError(
                f"{path} is not the {kind} file of smallNORB: it has an array "
                f"of the shape {array.shape}, expected {shape}"
            )
    if images.dtype != np.uint8:
        raise UserError(f"{paths['dat']} does not hold bytes")
    labels = read_labels(paths["cat"], labels, 0, NUM_CLASSES - 1)
    return StereoImages(images, labels, meta)


def _find(folder, pattern):
    folder = require_folder(folder)
    found = sorted([*folder.glob(pattern), *folder.glob(pattern + ".gz")])
    # A file that is there both plain and gzipped is one file.
    if len({path.name.removesuffix(".gz") for path in found}) != 1:
        names = ", ".join(path.name for path in found)
        raise UserError(
            f"--data_dir={folder} must have one file {pattern} or "
            f"{pattern}.gz; it has: {names or listing(folder)}"
        )
    return found[0]
