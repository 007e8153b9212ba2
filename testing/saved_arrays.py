"""What a checkpoint of this project holds."""

import pathlib

import h5py


def saved(path):
    """Every array of a checkpoint, by name: weights, the optimiser's state."""
    arrays = {}

    def collect(name, item):
        if isinstance(item, h5py.Dataset):
            arrays[name] = item[()]

    with h5py.File(pathlib.Path(path) / "model.weights.h5") as file:
        file.visititems(collect)
    return arrays
