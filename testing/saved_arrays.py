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


def assert_same_state(path, other, rtol=0, atol=0):
    """Compares all arrays of two checkpoints, by default bit by bit."""
    first, second = saved(path), saved(other)
    assert first.keys() == second.keys() != set()
    for name, array in first.items():
        np.testing.assert_allclose(array, second[name], rtol, atol)
