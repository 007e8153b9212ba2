"""Checkpoints: one directory each, complete or not there at all.

`<directory>/model.ckpt-<step>/` holds

  model.weights.h5   weights and optimizer state, as Keras saves them
  checkpoint.json    step, architecture, training settings, checksums

A checkpoint is written under a temporary name, flushed to disk and renamed, so
that a killed process never leaves a partial one.
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

from common.errors import UserError, reading
from common.files import atomic_write
from common.flags import flag_specs
from input_data.features import ImageShape
from models.hparams import BaseHParams, parse_overrides
from models.registry import build_model, model_class

WEIGHTS_FILE = "model.weights.h5"
JSON_FILE = "checkpoint.json"
_FORMAT = 1
_NAME = re.compile(r"model\.ckpt-(\d+)")
# Space for names and layout in the file of weights; 42 KB for the default.
_HDF5_OVERHEAD = 2**20


class DamagedError(UserError):
    """The files of a checkpoint are missing or not what was written."""


@dataclasses.dataclass(frozen=True)
class Architecture:
    """A network, except for the values of its weights.

    Attributes:
      model: string, a key of `models.registry.MODELS`.
      shape: `ImageShape`, the images and the number of classes.
      num_targets: int, objects in an image.
      hparams: the model's `HParams`.
    """

    model: str
    shape: ImageShape
    num_targets: int
    hparams: BaseHParams

    @classmethod
    def from_config(cls, config, spec):
        """The network for a `Config` and the `features.Spec` of its data."""
        model = config.model or "capsule"
        return cls.from_strings(
            model, spec.shape, spec.num_targets, config.hparams_override
        )

    @classmethod
    def from_strings(cls, model, shape, num_targets, overrides):
        """The network for a model's name and a string of hyper-parameters."""
        hparams_class = model_class(model).HParams
        hparams = hparams_class(**parse_overrides(hparams_class, overrides))
        return cls(model, shape, num_targets, hparams)

    @classmethod
    def from_json(cls, values):
        """The inverse of `dataclasses.asdict`."""
        hparams_class = model_class(values["model"]).HParams
        # Early checkpoints list the hyper-parameters of all models.
        known = flag_specs(hparams_class)
        hparams = {n: v for n, v in values["hparams"].items() if n in known}
        return cls(
            values["model"],
            ImageShape(**values["shape"]),
            values["num_targets"],
            hparams_class(**hparams),
        )

    @property
    def takes_any_size(self):
        """Whether the weights do not depend on the size of the images."""
        return model_class(self.model).takes_any_size(self.hparams)

    def build(self, seed=0):
        """The `keras.Model` with initial weights of the seed."""
        return build_model(
            self.model, self.shape, self.num_targets, self.hparams, seed
        )

    def network(self):
        """Dict of all settings that determine the weights."""
        shape = dataclasses.asdict(self.shape)
        if self.takes_any_size:
            del shape["height"], shape["width"]
        return {
            "model": self.model,
            **shape,
            "num_targets": self.num_targets,
            **{
                name: getattr(self.hparams, name)
                for name, (_, _, spec) in flag_specs(self.hparams).items()
                if spec.network
            },
        }


@dataclasses.dataclass(frozen=True)
class Metadata:
    """What a checkpoint records beside the weights.

    Attributes:
      step: int, optimizer steps taken.
      architecture: `Architecture`.
      training: dict of the settings of the run that wrote it.
      class_names: sequence of strings, or None.
    """

    step: int
    architecture: Architecture
    training: dict
    class_names: tuple | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checkpoint(Metadata):
    """An opened checkpoint, whose files match their checksums."""

    path: pathlib.Path

    @property
    def has_slots(self):
        """Whether it holds the optimizer's state."""
        return self.training.get("optimizer_state", True)

    def load(self, model, architecture):
        """Loads the weights, and the optimizer's state if it is compiled.

        Raises:
          UserError: if `architecture` is of another network.
        """
        self.require_same_network(architecture)
        optimizer = getattr(model, "optimizer", None)
        if optimizer is not None:
            # Keras skips the state of an optimizer that is not built.
            optimizer.build(model.trainable_variables)
        with reading(self.path):
            model.load_weights(self.path / WEIGHTS_FILE)

    def require_same_network(self, architecture):
        """Raises UserError unless the weights fit an `Architecture`."""
        saved, given = self.architecture.network(), architecture.network()
        differences = [
            f"{name} is {value} in the checkpoint, not {given[name]}"
            for name, value in saved.items()
            if name in given and given[name] != value
        ]
        if differences:
            raise UserError(
                f"{self.path} has another architecture: "
                f"{'; '.join(differences)}"
            )

    def check_same_data(self, config, spec):
        """Refuses evaluation on images that may have been trained on.

        Args:
          config: `Config` of the job that uses the checkpoint.
          spec: `features.Spec` of its images.

        Raises:
          UserError: if the same data set is split otherwise, or its classes
            have other names.
        """
        if self.training.get("dataset") != config.dataset_name:
            return
        recorded = {**self.training, "class_names": self.class_names}
        required = dict(spec.split_fingerprints)
        if spec.split_seed is not None:
            required["seed"] = spec.split_seed
        if config.validate:
            of_files = config.data_dir is not None
            for name, value in (("validate", True), ("of_files", of_files)):
                if recorded.get(name) is not None:
                    required[name] = value
        if spec.class_names and self.class_names:
            required["class_names"] = list(spec.class_names)
        # A test split found by hashing must not become a split by folders.
        if "divided_for_test" in recorded:
            required.setdefault("divided_for_test", None)
        for name, value in required.items():
            if recorded.get(name) != value:
                raise UserError(
                    f"{self.path} was trained on a different split or other "
                    f"classes: {name} was {recorded.get(name)} and is {value}"
                )


def checkpoint_path(directory, step):
    """The path of the checkpoint of a step."""
    return pathlib.Path(directory) / f"model.ckpt-{step}"


def find_all(directory):
    """List of (step, path) of the checkpoints in a directory, by step."""
    directory = pathlib.Path(directory)
    paths = directory.iterdir() if directory.is_dir() else ()
    return sorted(
        (int(match[1]), path)
        for path in paths
        if (match := _NAME.fullmatch(path.name)) and path.is_dir()
    )


def open_checkpoint(path):
    """Opens a checkpoint and verifies its checksums.

    Args:
      path: path of a checkpoint; of the --summary_dir of a training or its
        folder train, for the newest; or the prefix of a TF1 checkpoint.

    Returns:
      `Checkpoint`, or `tf1_checkpoint.Tf1Checkpoint` with the same methods.

    Raises:
      DamagedError: if files are missing or damaged.
      UserError: if there is no checkpoint.
    """
    path = pathlib.Path(path)
    if path.is_file() or pathlib.Path(f"{path}.index").is_file():
        from training.tf1_checkpoint import Tf1Checkpoint

        return Tf1Checkpoint(path)
    if not _NAME.fullmatch(path.name) and not (path / JSON_FILE).exists():
        candidates = find_all(path / "train") or find_all(path)
        if not candidates:
            raise UserError(f"{path}: there is no checkpoint")
        _, path = candidates[-1]
    if not path.is_dir():
        nearby = [other.name for _, other in find_all(path.parent)]
        raise UserError(
            f"{path}: there is no such checkpoint; its folder has "
            f"{', '.join(nearby) or 'none'}"
        )
    try:
        values = json.loads((path / JSON_FILE).read_text())
        json_digest = values.pop("sha256_of_this")
        with open(path / WEIGHTS_FILE, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if json_digest != _json_digest(values) or digest != values["sha256"]:
            raise ValueError("a checksum differs")
    except Exception as error:
        raise DamagedError(f"{path} is damaged: {error}") from error
    with reading(path / JSON_FILE):
        return Checkpoint(
            step=values["step"],
            architecture=Architecture.from_json(values["architecture"]),
            training=values["training"],
            class_names=values.get("class_names"),
            path=path,
        )


def latest_valid(directory, quarantine=False):
    """Opens the newest checkpoint that is not damaged.

    Args:
      directory: path.
      quarantine: bool, whether to rename damaged newer ones, so that their
        steps can be saved again.

    Returns:
      `Checkpoint`, or None if there is none.

    Raises:
      UserError: with `quarantine`, if all checkpoints are damaged.
    """
    checkpoints = find_all(directory)
    damaged = []
    for _, path in reversed(checkpoints):
        try:
            checkpoint = open_checkpoint(path)
        except DamagedError as error:
            print(f"Warning: {error}", flush=True)
            damaged.append(path)
            continue
        if quarantine:
            for bad in damaged:
                bad.rename(bad.with_name(f"{bad.name}.damaged-{os.getpid()}"))
        return checkpoint
    if damaged and quarantine:
        raise UserError(f"all checkpoints in {directory} are damaged")
    return None


def save(directory, model, metadata, keep=0):
    """Writes the checkpoint of a step.

    Args:
      directory: path of an existing folder.
      model: compiled `keras.Model`.
      metadata: `Metadata`.
      keep: int, number of newest checkpoints to keep; 0 keeps all.

    Returns:
      The path of the checkpoint.

    Raises:
      UserError: if it exists or cannot be written; earlier ones stay.
    """
    path = checkpoint_path(directory, metadata.step)
    with atomic_write(path) as partial:
        partial.mkdir()
        weights = partial / WEIGHTS_FILE
        _reserve_space(weights, model)
        model.save_weights(weights, overwrite=True)
        with open(weights, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        values = {
            "format": _FORMAT,
            "step": metadata.step,
            "architecture": dataclasses.asdict(metadata.architecture),
            "training": metadata.training,
            "class_names": metadata.class_names,
            "versions": {
                "keras": keras.__version__,
                "backend": keras.backend.backend(),
                "python": platform.python_version(),
            },
            "sha256": digest,
        }
        values["sha256_of_this"] = _json_digest(values)
        (partial / JSON_FILE).write_text(json.dumps(values, indent=2) + "\n")
    if keep:
        for _, old in find_all(directory)[:-keep]:
            # Renamed first: readers see all of it or nothing.
            removed = old.with_name(f".{old.name}.removed.partial")
            old.rename(removed)
            shutil.rmtree(removed, ignore_errors=True)
    return path


def _reserve_space(path, model):
    """Raises OSError if the weights do not fit on the disk.

    HDF5 may end the process when the disk is full.
    """
    variables = [*model.variables, *model.optimizer.variables]
    size = 4 * sum(math.prod(v.shape) for v in variables)
    with open(path, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, size + _HDF5_OVERHEAD)


def _json_digest(values):
    text = json.dumps(values, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
