"""Opens checkpoints of all formats: ours, TF1's and HDF5 files of Keras 2."""

import pathlib

from common.errors import UserError
from training.best import resolve_best
from training.checkpoint import read_checkpoint
from training.h5_weights import open_weights
from training.tf1_checkpoint import Tf1Checkpoint


def open_checkpoint(path, model=None):
    """Opens a checkpoint; returns a `Checkpoint` or a `Tf1Checkpoint`.

    `path` is a checkpoint, the prefix of a TF1 checkpoint, an HDF5 file of
    weights (see `h5_weights`), or a --summary_dir, which stands for its newest
    checkpoint; SUMMARY_DIR/best stands for its best one. Raises DamagedError if
    files are missing or differ from their checksums, and UserError if the
    checkpoint's model is outside this project and not `model`, the user's
    --model: a checkpoint alone runs no code.
    """
    path = pathlib.Path(path)
    if path.suffix in (".h5", ".hdf5") and path.is_file():
        return open_weights(path)
    if path.suffix in (".keras", ".npz") and path.is_file():
        raise UserError(f"{path} is an export, not a checkpoint")
    if path.is_file() or pathlib.Path(f"{path}.index").is_file():
        return Tf1Checkpoint(path)
    if path.name == "best" and not path.exists():
        path = resolve_best(path)
    return read_checkpoint(path, model)
