"""Checkpoints: one directory each, complete or not there at all.

`<directory>/model.ckpt-<step>/` holds

  model.weights.h5   weights and optimiser state, as Keras saves them
  checkpoint.json    step, architecture, how it was trained, checksums

It is written under a temporary name, flushed to the disk and then renamed, so
that no reader ever sees a part of one and a killed process leaves none.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import re
import shutil

import keras

from errors import UserError
from training.architecture import Architecture

FORMAT = 1
WEIGHTS_FILE = "model.weights.h5"
JSON_FILE = "checkpoint.json"
_NAME = re.compile(r"model\.ckpt-(\d+)")
_TEMPORARY = re.compile(r"\.model\.ckpt-\d+\.partial")


@dataclasses.dataclass(frozen=True)
class Metadata:
    """What a checkpoint says of itself beside its weights.

    Attributes:
      step: int, optimiser steps taken.
      architecture: `Architecture`.
      training: dict, the settings of the run that wrote it: dataset,
        validate, seed, batch_size, max_steps.
    """

    step: int
    architecture: Architecture
    training: dict


def path_of(directory, step):
    """The path of the checkpoint of a step."""
    return pathlib.Path(directory) / f"model.ckpt-{step}"


def find_all(directory):
    """The checkpoints in a directory.

    Returns:
      List of (step, path), by step; empty if there is no such directory.
    """
    directory = pathlib.Path(directory)
    if not directory.is_dir():
        return []
    found = []
    for path in directory.iterdir():
        match = _NAME.fullmatch(path.name)
        if match and path.is_dir():
            found.append((int(match.group(1)), path))
    return sorted(found)


def save(directory, model, metadata):
    """Writes the checkpoint of the model's step; an existing one is kept.

    Args:
      directory: path, made if it is not there.
      model: compiled `keras.Model`.
      metadata: `Metadata`.

    Returns:
      The path of the checkpoint.

    Raises:
      UserError: if it cannot be written (a full disk, no permission).
    """
    final = path_of(directory, metadata.step)
    if final.exists():
        return final
    partial = final.with_name(f".{final.name}.partial")
    try:
        _write(partial, model, metadata)
        partial.rename(final)
        flush(final.parent)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise UserError(
            f"{final} cannot be written: {error.strerror or error}. Earlier "
            "checkpoints are as they were."
        ) from error
    return final


def remove_partial(directory):
    """Removes what a process that was killed while saving left behind."""
    directory = pathlib.Path(directory)
    if directory.is_dir():
        for path in directory.iterdir():
            if _TEMPORARY.fullmatch(path.name):
                shutil.rmtree(path)


def read_metadata(path):
    """Reads what a checkpoint says of itself.

    Args:
      path: path of a checkpoint directory.

    Returns:
      `Metadata`.

    Raises:
      UserError: if there is no checkpoint, or its json is damaged.
    """
    values = _read_json(pathlib.Path(path))
    try:
        return Metadata(
            step=values["step"],
            architecture=Architecture.from_json(values["architecture"]),
            training=values["training"],
        )
    except (KeyError, TypeError, UserError) as error:
        raise UserError(
            f"{pathlib.Path(path) / JSON_FILE} does not describe a network "
            f"of this version: {error}"
        ) from error


def load(path, model):
    """Loads weights and, if the model has one, the optimiser's state.

    Args:
      path: path of a checkpoint directory.
      model: `keras.Model` of the checkpoint's architecture; with an optimiser
        the model must be compiled.

    Raises:
      UserError: if a file is missing, damaged, or of another architecture.
    """
    path = pathlib.Path(path)
    values = _read_json(path)
    weights = path / WEIGHTS_FILE
    if _checksum(weights) != values.get("sha256"):
        raise UserError(
            f"{weights} is damaged: its checksum is not the one in {JSON_FILE}"
        )
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None:
        # Unbuilt, its slots would be passed over with a mere warning.
        optimizer.build(model.trainable_variables)
    try:
        model.load_weights(weights)
    except ValueError as error:
        raise UserError(
            f"{weights} is not of this architecture: {error}"
        ) from error
    if optimizer is not None and int(optimizer.iterations) != values["step"]:
        raise UserError(
            f"{path}: the optimiser is at step {int(optimizer.iterations)} "
            f"but {JSON_FILE} says {values['step']}"
        )


def _write(path, model, metadata):
    path.mkdir(parents=True, exist_ok=True)
    weights = path / WEIGHTS_FILE
    with _os_errors():
        model.save_weights(weights, overwrite=True)
    values = {
        "format": FORMAT,
        "step": metadata.step,
        "architecture": metadata.architecture.to_json(),
        "training": metadata.training,
        "versions": {
            "keras": keras.__version__,
            "backend": keras.backend.backend(),
        },
        "sha256": _checksum(weights),
    }
    description = path / JSON_FILE
    description.write_text(json.dumps(values, indent=2) + "\n")
    for item in (weights, description, path):
        flush(item)


@contextlib.contextmanager
def _os_errors():
    """h5py reports a full disk as RuntimeError or ValueError."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        raise OSError(str(error)) from error


def flush(path):
    """Waits until a file or directory is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_json(path):
    description = path / JSON_FILE
    try:
        values = json.loads(description.read_text())
    except FileNotFoundError:
        raise UserError(_not_there(path)) from None
    except (OSError, ValueError) as error:
        raise UserError(f"{description} cannot be read: {error}") from None
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise UserError(
            f"{description} is not of format {FORMAT}, which this version reads"
        )
    return values


def _not_there(path):
    found = [str(there) for _, there in find_all(path.parent)]
    if path.is_dir() and find_all(path):
        found = [str(there) for _, there in find_all(path)]
    return f"there is no checkpoint {path}; found " + (
        ", ".join(found) if found else f"none in {path.parent}"
    )


def _checksum(path):
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(
            f"{path} cannot be read: {error.strerror or error}"
        ) from None
