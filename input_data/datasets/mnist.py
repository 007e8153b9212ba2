"""MNIST from its idx files, the reference's record files or TFDS.

The idx format: http://yann.lecun.com/exdb/mnist/ (two zero bytes, the type of
the values, the number of axes, each axis as a big-endian uint32, the values).
"""

import numpy as np

from common.errors import reading
from input_data.datasets import mnist_record_files, tfds_images
from input_data.files import find, labelled_images, open_file
from input_data.images import SINGLE_SHIFT, make_pipeline
from input_data.registry import MAX_HELD_OUT, Split, select

NUM_CLASSES = 10
_UNSIGNED_BYTE = 8


def load(split, config):
    """The pipeline of one split.

    `data_dir` names record files or a folder with them, see
    `mnist_record_files`, or else a folder with the idx files, plain or
    gzipped; by default the images are TFDS's mnist.
    """
    if config.data_dir is not None:
        pipeline = mnist_record_files.load(split, config)
        if pipeline is not None:
            return pipeline
    return make_pipeline(
        read_split(split, config.data_dir), config, SINGLE_SHIFT
    )


def read_split(split, data_dir):
    """The `LabelledImages` of one split, from idx files or else TFDS."""
    training = split is not Split.TEST
    if data_dir is None:
        data = tfds_images.read("mnist", training, NUM_CLASSES)
    else:
        data = _read_files(data_dir, "train" if training else "t10k")
    return select(split, data, MAX_HELD_OUT)


def _read_files(data_dir, prefix):
    names = (f"{prefix}-images-idx3-ubyte", f"{prefix}-labels-idx1-ubyte")
    paths = [
        find(data_dir, name, f"{name}.gz", hint=mnist_record_files.HINT)
        for name in names
    ]
    images, labels = _read_idx(paths[0], 3), _read_idx(paths[1], 1)
    return labelled_images(paths[0], images[..., None], labels, NUM_CLASSES)


def _read_idx(path, num_axes):
    """uint8 array of an idx file."""
    with reading(path), open_file(path) as file:
        content = file.read()
        if content[:4] != bytes([0, 0, _UNSIGNED_BYTE, num_axes]):
            raise ValueError(f"not an idx file of bytes with {num_axes} axes")
        shape = np.frombuffer(content, ">u4", num_axes, offset=4)
        pixels = np.frombuffer(content, np.uint8, offset=4 + 4 * num_axes)
        return pixels.reshape(shape)
