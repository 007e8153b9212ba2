"""Writes small MNIST idx files: for tests only."""

import gzip
import struct

import numpy as np


def write_mnist(folder, num_train, num_test, size=28, seed=0):
    """Writes the four files of MNIST, the labels plain, the images gzipped.

    Images are random; each is bright in its first pixel by its label, so that
    tests can tell which is which.

    Args:
      folder: path.
      num_train: int, training images.
      num_test: int, test images.
      size: int, height and width.
      seed: int.

    Returns:
      dict from "train" and "t10k" to (images, labels).
    """
    rng = np.random.default_rng(seed)
    written = {}
    for prefix, number in (("train", num_train), ("t10k", num_test)):
        labels = (np.arange(number) % 10).astype(np.uint8)
        images = rng.integers(0, 256, (number, size, size)).astype(np.uint8)
        images[:, 0, 0] = labels
        for name, array in (
            (f"{prefix}-images-idx3-ubyte.gz", images),
            (f"{prefix}-labels-idx1-ubyte", labels),
        ):
            content = struct.pack(
                f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape
            )
            content += array.tobytes()
            if name.endswith(".gz"):
                content = gzip.compress(content, 1)
            (folder / name).write_bytes(content)
        written[prefix] = (images, labels)
    return written
