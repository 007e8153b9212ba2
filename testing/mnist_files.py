"""Writes small MNIST idx files: for tests only."""

import gzip
import struct

import numpy as np


def write_mnist(folder, num_train, num_test, size=28):
    """Writes the four files of MNIST, the images gzipped, the labels plain.

    Images are random, but their first pixel is the label. Returns a dict from
    "train" and "t10k" to (images, labels).
    """
    generator = np.random.default_rng(0)
    written = {}
    for prefix, count in (("train", num_train), ("t10k", num_test)):
        labels = np.arange(count, dtype=np.uint8) % 10
        images = generator.integers(0, 256, (count, size, size))
        images = images.astype(np.uint8)
        images[:, 0, 0] = labels
        content = gzip.compress(_idx(images), 1)
        (folder / f"{prefix}-images-idx3-ubyte.gz").write_bytes(content)
        content = _idx(labels)
        (folder / f"{prefix}-labels-idx1-ubyte").write_bytes(content)
        written[prefix] = (images, labels)
    return written


def _idx(array):
    shape = struct.pack(f">{array.ndim}I", *array.shape)
    return bytes([0, 0, 8, array.ndim]) + shape + array.tobytes()
