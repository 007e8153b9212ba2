"""The arrays in a checkpoint of this project."""

import pathlib

import h5py
import numpy as np


def saved(path):
    """Dict from name to array: the weights and the optimizer's state."""
    arrays = {}

    def collect(name, item):
        if isinstance(item, h5py.Dataset):
            arrays[name] = item[()]

    with h5py.File(pathlib.Path(path) / "model.weights.h5") as file:
        file.visititems(collect)
    return arrays


def assert_same_state(path, other):
    """Compares all arrays of two checkpoints, bit by bit."""
    first, second = saved(path), saved(other)
    assert first
    np.testing.assert_equal(first, second)
