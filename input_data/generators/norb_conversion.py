"""Writes the reference's smallNORB records from the original files or TFDS.

The argument `novel` separates familiar from novel viewpoints, for the test in
section 6.1 of "Matrix capsules with EM routing" (Hinton, Sabour, Frosst 2018).
"""

import pathlib

import numpy as np

from common.errors import UserError, reading
from common.files import make_folder, refuse_existing, remove_partial
from input_data.datasets import tfds_images
from input_data.datasets.norb import file_name, is_familiar
from input_data.files import open_file
from input_data.records import encode_example, write_records

# https://cs.nyu.edu/~ylclab/data/norb-v1.0-small/
_MATRIX_TYPES = {0x1E3D4C55: "u1", 0x1E3D4C54: "<i4"}


def convert(data_dir, output_dir, novel=None):
    """Writes the records of the training and the test images.

    The arguments are the flags of norb_convert.py.
    """
    folder = pathlib.Path(output_dir)
    outputs = [(folder, True, True), (folder, False, True)]
    if novel:
        outputs.append((folder / "novel", False, False))
    for folder, training, _ in outputs:
        refuse_existing(folder / file_name(training))
    data = {training: _read(data_dir, training) for training in (True, False)}
    for folder, training, wants_familiar in outputs:
        meta = data[training][-1]
        chosen = np.ones(len(meta), bool)
        if novel:
            chosen = is_familiar(meta, novel) == wants_familiar
        path = folder / file_name(training)
        remove_partial(make_folder(folder), path.name)
        arrays = (array[chosen] for array in data[training])
        write_records(path, map(_encode, *arrays))
        print(f"{path}: {chosen.sum()} records")


def _encode(image, label, meta):
    depth, height, width = image.shape
    features = {"height": height, "width": width, "depth": depth}
    features |= {"label": label, "meta": meta, "image_raw": image.tobytes()}
    return encode_example(features)


def _read(data_dir, training):
    """Images, labels and meta of the original files or TFDS."""
    if data_dir is None:
        return tfds_images.read_smallnorb(training)
    split_name = "training" if training else "testing"
    matrices = []
    for kind in ("dat", "cat", "info"):
        pattern = f"*{split_name}-{kind}.mat"
        path = min(pathlib.Path(data_dir).glob(f"{pattern}*"), default=None)
        if path is None:
            raise UserError(f"--data_dir={data_dir} has no file {pattern}[.gz]")
        with reading(path), open_file(path) as file:
            matrices.append(_decode(file.read()))
    return matrices


def _decode(content):
    """The array of a matrix of bytes or int32.

    The header is little-endian: the type of the values, the number of axes,
    then the length of each axis, of three axes at least.
    """
    kind, num_axes = np.frombuffer(content, "<u4", 2).tolist()
    shape = np.frombuffer(content, "<i4", num_axes, offset=8)
    start = 8 + 4 * max(3, num_axes)
    values = np.frombuffer(content, _MATRIX_TYPES[kind], offset=start)
    return values.reshape(shape)
