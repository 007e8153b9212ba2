"""Writes the reference's smallNORB records from the original files or TFDS.

All images, or those of some viewpoints, to test a network on viewpoints that
it was not trained on: "Matrix capsules with EM routing" (Hinton, Sabour,
Frosst 2018), section 6.1.
"""

import functools
import gzip
import pathlib

import numpy as np

from common.errors import UserError, reading
from common.files import (
    atomic_write,
    make_folder,
    refuse_existing,
    remove_partial,
)
from input_data.datasets import tfds_images
from input_data.datasets.norb import file_name
from input_data.records import encode_example, write_records

# For each kind of viewpoint its column of meta (instance, elevation, azimuth,
# lighting) and the familiar values, a third of all. Azimuths are in tens of
# degrees.
_FAMILIAR = {"azimuth": (2, (30, 32, 34, 0, 2, 4)), "elevation": (1, (0, 1, 2))}
# https://cs.nyu.edu/~ylclab/data/norb-v1.0-small/
_MATRIX_TYPES = {0x1E3D4C55: "u1", 0x1E3D4C54: "<i4"}


def convert(data_dir, output_dir, novel=None):
    """Writes the records of the training and the test images.

    Args:
      data_dir: path of the folder with the original files, or None for TFDS.
      output_dir: path of the folder to write to; created if needed.
      novel: None for all images; "azimuth" or "elevation" for those of a third
        of the viewpoints, with the test images of the other viewpoints in the
        folder "novel" of `output_dir`.
    """
    folder = pathlib.Path(output_dir)
    outputs = [(folder, True, True), (folder, False, True)]
    if novel:
        outputs.append((folder / "novel", False, False))
    for folder, training, _ in outputs:
        refuse_existing(folder / file_name(training))
    read = tfds_images.read_smallnorb
    if data_dir is not None:
        read = functools.partial(_read_originals, pathlib.Path(data_dir))
    data = {training: read(training) for training in (True, False)}
    for folder, training, familiar in outputs:
        images, labels, meta = data[training]
        chosen = np.ones(len(images), bool)
        if novel:
            column, values = _FAMILIAR[novel]
            chosen = np.isin(meta[:, column], values) == familiar
        remove_partial(make_folder(folder))
        path = folder / file_name(training)
        with atomic_write(path) as partial:
            arrays = (images[chosen], labels[chosen], meta[chosen])
            write_records(partial, map(_encode, *arrays))
        print(f"{path}: {chosen.sum()} records")


def _encode(image, label, meta):
    depth, height, width = image.shape
    features = {"height": height, "width": width, "depth": depth}
    features |= {"label": label, "meta": meta, "image_raw": image.tobytes()}
    return encode_example(features)


def _read_originals(folder, training):
    """Reads smallnorb-*-training-dat.mat, -cat.mat and -info.mat."""
    split_name = "training" if training else "testing"
    matrices = []
    for kind in ("dat", "cat", "info"):
        pattern = f"*{split_name}-{kind}.mat"
        paths = [*folder.glob(pattern), *folder.glob(f"{pattern}.gz")]
        if not paths:
            raise UserError(f"--data_dir={folder} has no file {pattern}[.gz]")
        with reading(paths[0]):
            matrices.append(_read_matrix(paths[0]))
    return matrices


def _read_matrix(path):
    """Reads a matrix of bytes or int32, plain or gzipped.

    The header is little-endian: the type of the values, the number of axes,
    then the length of each axis, of three axes at least.
    """
    with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
        content = file.read()
    kind, num_axes = np.frombuffer(content, "<u4", 2).tolist()
    shape = np.frombuffer(content, "<i4", num_axes, offset=8)
    start = 8 + 4 * max(3, num_axes)
    values = np.frombuffer(content, _MATRIX_TYPES[kind], offset=start)
    return values.reshape(shape)
