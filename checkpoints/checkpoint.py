"""Checkpoints: one directory each, complete or not there at all.

`<directory>/model.ckpt-<step>/` holds

  model.weights.h5   weights and optimiser state, as Keras saves them
  checkpoint.json    step, architecture, how it was trained, checksums

It is written under a temporary name, flushed to the disk and then renamed, so
that no reader ever sees a part of one and a killed process leaves none. Both
files are covered by checksums. Reading one runs no code from it.

`open_checkpoint` opens one of these or a TF1 one, whichever it is.
"""

import contextlib
import dataclasses
import hashlib
import json
import math
import os
import pathlib
import platform
import stat

import keras
import tensorflow as tf

from checkpoints.architecture import Architecture
from checkpoints.folder import NAME, find_all, path_of, remove_old, set_aside
from checkpoints.schema import require_form
from checkpoints.tf1.tf1_checkpoint import Tf1Checkpoint, is_tf1
from input_data.features import DIVIDED_FOR_TEST, OF_FILES
from input_data.registry import TFDS_PREFIX, is_standardized
from old.durable import user_errors, whole
from old.errors import UserError
from old.text import listed, shortened

FORMAT = 1
_MOST_NAMES = 3
WEIGHTS_FILE = "model.weights.h5"
JSON_FILE = "checkpoint.json"
# Bounds for the size of a file of weights: the variables are float32, but for
# the integer step; names and layout of the default model take 42 KB.
_BYTES_PER_VALUE = 4
_HDF5_OVERHEAD = 2**20
# More than the description of a network with 100,000 long names of classes.
_LARGEST_JSON = 2**26
# Names of one data set, where TensorFlow Datasets has its files.
_SAME_IMAGES = ({"mnist", "tfds:mnist"}, {"svhn", "tfds:svhn_cropped"})


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checkpoint(Metadata):
    """A checkpoint that was opened: its files are what was written.

    Attributes:
      path: `pathlib.Path`.
    """

    path: pathlib.Path

    @property
    def has_slots(self):
        """Whether it holds the optimiser's state, to resume from it."""
        return self.training.get("optimizer_state", True)

    def load(self, model, architecture):
        """Loads weights and, if the model has one, the optimiser's state.

        Args:
          model: `keras.Model` of the architecture; with an optimiser it must
            be compiled.
          architecture: `Architecture`.

        Raises:
          DamagedError: if the files cannot be read any more.
          UserError: if it is a checkpoint of another network.
        """
        self.require_same_network(architecture)
        optimizer = getattr(model, "optimizer", None)
        if optimizer is not None:
            # Unbuilt, its slots would be passed over with a mere warning.
            optimizer.build(model.trainable_variables)
        try:
            model.load_weights(self.path / WEIGHTS_FILE)
        except ValueError as error:
            raise UserError(
                f"{self.path} is not of this architecture: "
                f"{_in_one_line(error)}"
            ) from error
        except OSError as error:  # removed by a training with --keep, say
            raise DamagedError(
                f"{self.path} cannot be read: {_in_one_line(error)}"
            ) from error
        if optimizer is not None:
            step = int(keras.ops.convert_to_numpy(optimizer.iterations))
            if step != self.step:
                raise UserError(
                    f"{self.path}: the optimiser is at step {step} but "
                    f"{JSON_FILE} says {self.step}"
                )

    def require_same_network(self, asked):
        """Raises UserError for an `Architecture` of another network."""
        differences = self.architecture.network_differences(asked)
        if differences:
            listed = "; ".join(
                f"{name} is {there} in the checkpoint, {here} was asked for"
                for name, there, here in differences
            )
            raise UserError(
                f"{self.path} is of another architecture: {listed}. Ask for "
                "the same, or name another --summary_dir."
            )

    def require_usable(self, config, pipeline):
        """Refuses images that do not go with those it was trained on.

        Those are the images of a job that evaluates or resumes it, or starts
        a training from it.

        Args:
          config: `Config` of the job.
          pipeline: `Pipeline` of the job.

        Raises:
          UserError: if it was trained on the same data set, but on images
            that the job holds out, or on classes of other names or in another
            order; or if one of the two standardises its images.
        """
        before = self.training
        then, now = before.get("dataset"), config.dataset_name
        if then is not None and is_standardized(then) != is_standardized(now):
            raise UserError(
                f"{self.path} was trained on {then}, of which a network sees "
                f"other pixels than of {now}: those of cifar10 and norb are "
                "standardised, all others from 0 to 1"
            )
        if then != now:
            if config.validate and {then, now} in _SAME_IMAGES:
                raise UserError(
                    f"{self.path} was trained on {then}, whose images are "
                    f"those of {now}: with --validate name {then}, so that "
                    "those are held out that were in training"
                )
            return
        if config.validate and before.get("validate") is False:
            raise UserError(
                f"{self.path} was trained without --validate, on the very "
                "images that --validate holds out: leave it out here, or train "
                "with it from the start"
            )
        of_files = config.data_dir is not None
        if (
            config.validate
            and before.get(OF_FILES) is (not of_files)
            and not config.dataset_name.startswith(TFDS_PREFIX)
        ):
            where = {False: "of TensorFlow Datasets", True: "in --data_dir"}
            raise UserError(
                f"{self.path} was trained on the images {where[not of_files]}, "
                f"whose order is not that of those {where[of_files]}, so that "
                "some it was trained on would be held out: take the same"
            )
        if pipeline.spec.split_seed not in (None, before.get("seed")):
            raise UserError(
                f"{self.path} was trained with --seed={before.get('seed')}, "
                "which decided what images are for training: take the same "
                "seed, or train anew"
            )
        for name, digest in pipeline.spec.split_fingerprints.items():
            if before.get(name) != digest:
                raise UserError(
                    f"{self.path} was trained on images that were divided "
                    "otherwise: since then files came or went (or the "
                    "program's way of dividing them changed), so that some it "
                    "was trained on would be held out. Put the files back, or "
                    "train anew"
                )
        if (
            DIVIDED_FOR_TEST in before
            and DIVIDED_FOR_TEST not in pipeline.spec.split_fingerprints
        ):
            raise UserError(
                f"{self.path} was trained on images of which it held some out "
                "for testing by itself; now folders or splits train and test "
                "say which, so that some it was trained on may be among the "
                "test images. Put the files back, or train anew"
            )
        names, now = self.class_names, pipeline.spec.class_names
        if None not in (names, now) and list(names) != list(now):
            raise UserError(
                f"{self.path} was trained on the classes {listed(names)}, but "
                f"those of --dataset={config.dataset_name} here are "
                f"{listed(now)}: the same names are needed, in the same order"
            )


def _in_one_line(error):
    """What HDF5 says, which may be a page."""
    return shortened(" ".join(str(error).split()), 300)


def exists(path):
    """Whether something that may be a checkpoint is there."""
    return os.path.isdir(path) or is_tf1(path)


def require_existing(paths):
    """Raises UserError unless there may be a checkpoint at each of the paths.

    It lists those that were found.
    """
    found, missing = [], []
    for path in paths:
        (found if exists(path) else missing).append(path)
    if missing:
        raise UserError(
            f"missing checkpoints: {listed(missing, _MOST_NAMES)}; found: "
            f"{listed(found, _MOST_NAMES) or 'none'}"
        )


def open_checkpoint(path: str | os.PathLike) -> Checkpoint:
    """Opens a checkpoint, ours or a TF1 one, and verifies its files.

    Args:
      path: path of a checkpoint directory; of the --summary_dir of a training,
        or its folder train, for the newest of them; or the prefix of the files
        of a TF1 checkpoint.

    Returns:
      `Checkpoint` or `Tf1Checkpoint`, which have the same attributes: what a
      TF1 checkpoint does not tell is None there.

    Raises:
      DamagedError: naming the file that is missing or damaged.
      UserError: if there is no checkpoint, or not of this version.
    """
    if not os.fspath(path):  # as of a variable that is not set
        raise UserError("no checkpoint is named: the name is empty")
    path = pathlib.Path(path)
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        pass  # it may be what TF1's files have in common
    except OSError as error:
        raise UserError(
            f"checkpoint {shortened(path)} cannot be read: {error.strerror}"
        ) from None
    if path.name in (WEIGHTS_FILE, JSON_FILE):
        raise UserError(
            f"{path} is one file of the checkpoint {path.parent}: name that"
        )
    if is_tf1(path):
        return Tf1Checkpoint(path)
    if not os.path.exists(path / JSON_FILE) and (found := _found_in(path)):
        path = found[-1]
    values = _read_json(path)
    weights = path / WEIGHTS_FILE
    if _file_checksum(weights) != values["sha256"]:
        raise DamagedError(
            f"{weights} is damaged: its checksum is not the one in {JSON_FILE}"
        )
    try:
        architecture = Architecture.from_json(values["architecture"])
    except (KeyError, TypeError, UserError) as error:
        raise UserError(
            f"{path / JSON_FILE} does not describe a network of this version: "
            f"{error}"
        ) from error
    _require_so_many_weights(weights, architecture)
    return Checkpoint(
        step=values["step"],
        architecture=architecture,
        training=values["training"],
        class_names=values.get("class_names"),
        path=path,
    )


def _require_so_many_weights(path, architecture):
    """Refuses a description of a network that its file has no room for.

    To build it might take any time and memory.
    """
    try:
        room = path.stat().st_size
    except OSError as error:  # removed by a training with --keep, say
        raise DamagedError(f"{path} cannot be read: {error.strerror}") from None
    if _BYTES_PER_VALUE * architecture.num_weights > room:
        raise DamagedError(
            f"{path.parent / JSON_FILE} is damaged: it describes a network of "
            f"{architecture.num_weights:,} weights, more than {path.name} has"
        )


def newest_sound(directory: str | os.PathLike) -> Checkpoint | None:
    """Opens the newest checkpoint that is not damaged; None if there is none.

    It leaves all as they are.
    """
    for _, path in reversed(find_all(directory)):
        with contextlib.suppress(DamagedError):
            return open_checkpoint(path)
    return None


def newest(directory: str | os.PathLike) -> Checkpoint | None:
    """Opens the newest checkpoint in a directory that is not damaged.

    Damaged ones that are newer get other names: their steps will be done
    again, and they must not count as checkpoints to keep.

    Returns:
      `Checkpoint`, or None if there is none at all.

    Raises:
      UserError: if all of them are damaged.
    """
    found = find_all(directory)
    damaged = []
    for _, path in reversed(found):
        try:
            checkpoint = open_checkpoint(path)
        except DamagedError as error:
            print(f"Warning: {error}; looking for the one before", flush=True)
            damaged.append(path)
        else:
            for newer in damaged:
                print(f"Renamed it to {set_aside(newer)}")
            return checkpoint
    if found:
        raise UserError(
            f"all checkpoints in {directory} are damaged: name another "
            "--summary_dir to begin anew"
        )
    return None


def save(directory, model, metadata, keep=0):
    """Writes the checkpoint of the model's step.

    Args:
      directory: path, made if it is not there.
      model: compiled `keras.Model`.
      metadata: `Metadata`.
      keep: int, how many of the newest checkpoints to keep; 0 for all.

    Returns:
      The path of the checkpoint.

    Raises:
      UserError: if it cannot be written (a full disk, no permission), or
        there is something of its name.
    """
    final = path_of(directory, metadata.step)
    with user_errors(final, ". Earlier checkpoints are as they were."):
        final.parent.mkdir(parents=True, exist_ok=True)
        with whole(final) as partial:
            _write(partial, model, metadata)
    if keep:
        try:
            remove_old(directory, metadata.step, keep)
        except OSError as error:
            print(f"Note: an older checkpoint is not removed: {error}")
    return final


def _write(path, model, metadata):
    path.mkdir()
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
    (path / JSON_FILE).write_text(json.dumps(values, indent=2) + "\n")


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
        with _opened(description) as file:
            values = json.loads(file.read(_LARGEST_JSON))
        # Half of a pair of UTF-16 has no place in any file.
        json.dumps(values, ensure_ascii=False).encode()
        checksum = values.pop("sha256_of_this")
        is_sound = checksum == _json_checksum(values)
        version = values["format"]
    except FileNotFoundError:
        if find_tf1(path):
            raise UserError(_not_there(path)) from None
        raise DamagedError(f"{path} has no {JSON_FILE}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise DamagedError(f"{description} cannot be read: {error}") from None
    except (AttributeError, KeyError, TypeError):
        raise DamagedError(
            f"{description} does not describe a checkpoint"
        ) from None
    if not is_sound:
        raise DamagedError(f"{description} is damaged: its checksum differs")
    if version != FORMAT:
        raise UserError(
            f"{description} is of format {shortened(version)}; this version "
            f"reads format {FORMAT}"
        )
    try:
        require_form(values)
    except ValueError as error:
        raise DamagedError(f"{description} is damaged: {error}") from None
    match = NAME.fullmatch(path.name)
    if match and int(match.group(1)) != values["step"]:
        raise DamagedError(
            f"{path} holds step {values['step']}, not that of its name"
        )
    return values


def _not_there(path):
    folder = path if path.is_dir() else path.parent
    found = _found_in(folder)[::-1] or find_tf1(folder)
    return f"there is no checkpoint {path}; found " + (
        listed(found) if found else f"none in {folder}"
    )


def _found_in(folder):
    """The paths of checkpoints in a folder, or its folder train, by step."""
    for place in (folder / "train", folder):
        found = [path for _, path in find_all(place)]
        if found:
            return found
    return []


def find_tf1(folder):
    """The paths that name the TF1 checkpoints in a folder."""
    return sorted(path.with_suffix("") for path in folder.glob("*.index"))


def _opened(path):
    """Opens a file to read, if it is one: a pipe might never end."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError("it is not a file")
    return open(path, "rb")


def _file_checksum(path):
    try:
        with _opened(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DamagedError(
            f"{path} cannot be read: {error.strerror or error}"
        ) from None


def _json_checksum(values):
    text = json.dumps(values, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
