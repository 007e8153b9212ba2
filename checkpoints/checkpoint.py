"""Checkpoints: one directory each, complete or not there at all.

`<directory>/model.ckpt-<step>/` holds

  model.weights.h5   weights and optimiser state, as Keras saves them
  checkpoint.json    step, architecture, how it was trained, checksums

It is written under a temporary name, flushed to the disk and then renamed, so
that no reader ever sees a part of one and a killed process leaves none. Both
files are covered by checksums. Reading one runs no code from it.
"""

import dataclasses
import hashlib
import json
import math
import os
import pathlib
import platform
import re
import shutil

import keras
import tensorflow as tf

from checkpoints.architecture import Architecture
from common.durable import flush
from common.errors import UserError

FORMAT = 1
WEIGHTS_FILE = "model.weights.h5"
JSON_FILE = "checkpoint.json"
# Bounds for the size of a file of weights: the variables are float32, but for
# the integer step; names and layout of the default model take 42 KB.
_BYTES_PER_VALUE = 4
_HDF5_OVERHEAD = 2**20
_NAME = re.compile(r"model\.ckpt-(\d+)")
_TEMPORARY = re.compile(r"\.model\.ckpt-\d+\.(partial|removed)")


class DamagedError(UserError):
    """A checkpoint is there, but its files are not what was written."""


@dataclasses.dataclass(frozen=True)
class Metadata:
    """What a checkpoint says of itself beside its weights.

    Attributes:
      step: int, optimiser steps taken.
      architecture: `Architecture`.
      training: dict, the settings of the run that wrote it: dataset,
        seed, batch_size, dtype_policy and the like.
      class_names: list of strings, or None if the classes are numbers, or
        not known by name.
    """

    step: int
    architecture: Architecture
    training: dict
    class_names: list | None = None


def path_of(directory, step):
    """The path of the checkpoint of a step."""
    return pathlib.Path(directory) / f"model.ckpt-{step}"


def find_all(directory):
    """The checkpoints in a directory.

    Returns:
      List of (step, path), by step; empty if there is no such directory.
    """
    found = []
    for path in _list(directory):
        match = _NAME.fullmatch(path.name)
        if match and path.is_dir():
            found.append((int(match.group(1)), path))
    return sorted(found)


def _list(directory):
    """The paths in a directory; none if it is not there."""
    try:
        return list(pathlib.Path(directory).iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UserError(
            f"{directory} cannot be read: {error.strerror}"
        ) from None


def save(directory, model, metadata, keep=0):
    """Writes the checkpoint of the model's step; a sound one is not redone.

    Args:
      directory: path, made if it is not there.
      model: compiled `keras.Model`.
      metadata: `Metadata`.
      keep: int, how many of the newest checkpoints to keep; 0 for all.

    Returns:
      The path of the checkpoint.

    Raises:
      UserError: if it cannot be written (a full disk, no permission).
    """
    final = path_of(directory, metadata.step)
    partial = _hidden(final, "partial")
    try:
        if final.exists() and not final.is_dir():
            raise FileExistsError("there is a file of this name")
        if _is_sound(final):
            return final
        if final.exists():
            set_aside(final)
        _write(partial, model, metadata)
        partial.rename(final)
        flush(final.parent)
        if keep:
            _remove_old(directory, metadata.step, keep)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise UserError(
            f"{final} cannot be written: {error.strerror or error}. Earlier "
            "checkpoints are as they were."
        ) from error
    return final


def set_aside(path):
    """Gives a damaged checkpoint a name that `find_all` does not find.

    Returns:
      The new path.
    """
    number = 0
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    return path.rename(aside)


def remove_partial(directory):
    """Removes what a process that was killed while saving left behind."""
    for path in _list(directory):
        if _TEMPORARY.fullmatch(path.name) and path.is_dir():
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
            class_names=values.get("class_names"),
        )
    except (KeyError, TypeError, UserError) as error:
        raise UserError(
            f"{pathlib.Path(path) / JSON_FILE} does not describe a network "
            f"of this version: {error}"
        ) from error


def verify(path):
    """Checks that a checkpoint's files are what was written.

    Args:
      path: path of a checkpoint directory.

    Returns:
      Its step.

    Raises:
      DamagedError: naming the file that is missing or damaged.
      UserError: if there is no checkpoint at all.
    """
    path = pathlib.Path(path)
    values = _read_json(path)
    weights = path / WEIGHTS_FILE
    if _file_checksum(weights) != values["sha256"]:
        raise DamagedError(
            f"{weights} is damaged: its checksum is not the one in {JSON_FILE}"
        )
    return values["step"]


def load(path, model):
    """Loads weights and, if the model has one, the optimiser's state.

    Args:
      path: path of a checkpoint directory.
      model: `keras.Model` of the checkpoint's architecture; with an optimiser
        the model must be compiled.

    Raises:
      DamagedError: if a file is missing or damaged.
      UserError: if there is no checkpoint, or of another architecture.
    """
    path = pathlib.Path(path)
    saved_step = verify(path)
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None:
        # Unbuilt, its slots would be passed over with a mere warning.
        optimizer.build(model.trainable_variables)
    try:
        model.load_weights(path / WEIGHTS_FILE)
    except ValueError as error:
        raise UserError(
            f"{path} is not of this architecture: {error}"
        ) from error
    except OSError as error:  # removed by a training with --keep, say
        raise DamagedError(f"{path} cannot be read: {error}") from error
    if optimizer is not None:
        step = int(keras.ops.convert_to_numpy(optimizer.iterations))
        if step != saved_step:
            raise UserError(
                f"{path}: the optimiser is at step {step} but {JSON_FILE} "
                f"says {saved_step}"
            )


def _write(path, model, metadata):
    path.mkdir(parents=True, exist_ok=True)
    weights = path / WEIGHTS_FILE
    _require_space(weights, model)
    model.save_weights(weights, overwrite=True)
    values = {
        "format": FORMAT,
        "step": metadata.step,
        "architecture": metadata.architecture.to_json(),
        "training": metadata.training,
        "class_names": metadata.class_names,
        "versions": {
            "keras": keras.__version__,
            "backend": keras.backend.backend(),
            "tensorflow": tf.__version__,
            "python": platform.python_version(),
        },
        "sha256": _file_checksum(weights),
    }
    values["sha256_of_this"] = _json_checksum(values)
    description = path / JSON_FILE
    description.write_text(json.dumps(values, indent=2) + "\n")
    for item in (weights, description, path):
        flush(item)


def _require_space(path, model):
    """Raises OSError if a file for the model's variables does not fit.

    HDF5 takes a full disk badly: it cannot close its file, and may end the
    process.
    """
    variables = [*model.variables, *model.optimizer.variables]
    size = _BYTES_PER_VALUE * sum(math.prod(v.shape) for v in variables)
    with open(path, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, size + _HDF5_OVERHEAD)


def _read_json(path):
    description = path / JSON_FILE
    if not path.is_dir():
        raise UserError(_not_there(path))
    try:
        values = json.loads(description.read_text())
    except FileNotFoundError:
        # The folder of checkpoints, not one of them?
        if (
            find_all(path)
            or find_all(path / "train")
            or list(path.glob("*.index"))
        ):
            raise UserError(_not_there(path)) from None
        raise DamagedError(f"{path} has no {JSON_FILE}") from None
    except (OSError, ValueError) as error:
        raise DamagedError(f"{description} cannot be read: {error}") from None
    if not isinstance(values, dict) or "format" not in values:
        raise DamagedError(f"{description} does not describe a checkpoint")
    checksum = values.pop("sha256_of_this", None)
    if checksum != _json_checksum(values):
        raise DamagedError(f"{description} is damaged: its checksum differs")
    match = _NAME.fullmatch(path.name)
    if match and int(match.group(1)) != values["step"]:
        raise DamagedError(
            f"{path} holds step {values['step']}, not that of its name"
        )
    if values["format"] != FORMAT:
        raise UserError(
            f"{description} is of format {values['format']}; this version "
            f"reads format {FORMAT}"
        )
    return values


def _not_there(path):
    folder = path if path.is_dir() else path.parent
    if find_all(folder / "train"):  # a --summary_dir
        folder = folder / "train"
    found = [str(there) for _, there in find_all(folder)]
    # TF1 checkpoints are named by what their files have in common.
    found += sorted(str(p.with_suffix("")) for p in folder.glob("*.index"))
    return f"there is no checkpoint {path}; found " + (
        ", ".join(found) if found else f"none in {folder}"
    )


def _file_checksum(path):
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DamagedError(
            f"{path} cannot be read: {error.strerror or error}"
        ) from None


def _json_checksum(values):
    text = json.dumps(values, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _hidden(path, what):
    """A name beside a checkpoint that `find_all` does not see."""
    return path.with_name(f".{path.name}.{what}")


def _is_sound(path):
    try:
        verify(path)
    except UserError:
        return False
    return True


def _remove_old(directory, newest, keep):
    """Removes all but `keep` of the checkpoints up to step `newest`."""
    paths = [path for step, path in find_all(directory) if step <= newest]
    for path in paths[:-keep]:
        # Under another name first: a reader sees all of it or nothing.
        removed = _hidden(path, "removed")
        path.rename(removed)
        shutil.rmtree(removed)
