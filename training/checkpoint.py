"""Checkpoints: one directory each, complete or not there at all.

`<directory>/model.ckpt-<step>/` holds

  model.weights.h5   weights and optimizer state, as Keras saves them
  checkpoint.json    step, architecture, training settings, checksums

A checkpoint is written under a temporary name, flushed to disk and renamed, so
that a killed process never leaves a partial one.
"""

import contextlib
import dataclasses
import errno
import hashlib
import json
import math
import os
import pathlib
import re
import shutil
import unicodedata
import warnings

import h5py

from common.errors import UserError, user_errors
from common.files import EXAMPLES, atomic_write, require
from common.flags import flag_specs, is_external
from input_data.keys import ImageShape
from models.architecture import Architecture
from models.optimizer import make_optimizer
from models.table import find_model

WEIGHTS_FILE = "model.weights.h5"
JSON_FILE = "checkpoint.json"
# The next version of this project must read this format, too.
FORMAT = 2
_CHANGED = "files or folders were added, removed or renamed"
_OTHER_SPLIT = {
    "divided_for_test": _CHANGED,
    "divided_for_validation": _CHANGED,
    "validation_images": "the images or their order changed",
    "of_files": "training and evaluation both need --data_dir, or neither",
    "seed": "add --seed={}",
    "validate": "training and evaluation both need --validate",
}
_NAME = re.compile(r"model\.ckpt-(\d+)")


class DamagedError(UserError):
    """A checkpoint's files are missing or differ from those written."""


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint holds apart from the weights.

    `run_settings` are settings of the training that wrote it, `trained` the
    `trained_weights` of its network. `path` is None before it is saved.
    """

    step: int
    architecture: Architecture
    run_settings: dict
    class_names: tuple | None = None
    trained: list = ()
    path: pathlib.Path | None = None

    @property
    def has_optimizer_state(self):
        return self.run_settings.get("optimizer_state", True)

    def can_continue(self, model):
        """Whether the optimizer's state is that of the weights of a model."""
        return (
            self.has_optimizer_state
            and (self.architecture.hparams.ema > 0) == (model.hparams.ema > 0)
            and self.trained == trained_weights(model)
        )

    def load(self, model, architecture):
        """Loads the weights and, into a compiled model, the optimizer's state.

        A model that is not compiled gets the weights' moving average, if saved.
        Raises UserError if `architecture` differs from the checkpoint's.
        """
        self._require(self.architecture.settings(), architecture.settings())
        with user_errors(self.path), warnings.catch_warnings():
            # Keras would only warn, and then restart the optimizer.
            warnings.filterwarnings("error", "Skipping variable loading")
            self._load_weights(model)

    def _load_weights(self, model):
        path = self.path / WEIGHTS_FILE
        model.load_weights(path)
        if self.architecture.hparams.ema and not model.compiled:
            # optimizer/vars holds first the variables of any new optimizer,
            # then one average for each weight that was trained.
            first = len(make_optimizer(model, max_steps=1).variables)
            with h5py.File(path) as file:
                for n, index in enumerate(self.trained, first):
                    average = file[f"optimizer/vars/{n}"][()]
                    model.weights[index].assign(average)

    def check_same_data(self, config, spec):
        """Refuses evaluation on images that may have been trained on.

        Raises UserError if `config` and `spec` divide the checkpoint's data set
        or name its classes differently, or if another data set has the same
        class names reordered.
        """
        recorded = {**self.run_settings, "class_names": _nfc(self.class_names)}
        names = _nfc(spec.class_names)
        required = {"class_names": names} if names and self.class_names else {}
        if recorded.get("dataset") != config.dataset:
            # It may have other classes, but not the same in another order.
            if sorted(names) == sorted(recorded["class_names"]):
                self._require(recorded, required)
            return
        if config.validate:
            required["validate"] = True
            required["of_files"] = config.data_dir is not None
        if spec.split_seed is not None:
            required["seed"] = spec.split_seed
        required |= spec.split_fingerprints
        # A split found by hashing must not become a split by folders.
        purposes = ("test", "validation") if config.validate else ("test",)
        for purpose in purposes:
            if (hashed := f"divided_for_{purpose}") in recorded:
                required.setdefault(hashed, None)
        self._require(recorded, required)

    def _require(self, recorded, required):
        for name, value in required.items():
            if recorded.get(name) != value:
                reason = f"{name} was {recorded.get(name)} and is {value}"
                if name in _OTHER_SPLIT:
                    cause = _OTHER_SPLIT[name].format(recorded.get(name))
                    reason = f"the split of images differs, {cause} ({reason})"
                raise UserError(f"{self.path} does not fit: {reason}")


def _nfc(names):
    return [unicodedata.normalize("NFC", name) for name in names or ()]


def trained_weights(model):
    """The indices in `model.weights` of the weights that are trained."""
    return [n for n, w in enumerate(model.weights) if w.trainable]


def checkpoint_path(directory, step):
    """The path of the checkpoint of a step."""
    return pathlib.Path(directory) / f"model.ckpt-{step}"


def find_all(directory):
    """List of (step, path) of a directory's checkpoints, sorted by step."""
    return sorted(
        (int(match[1]), path)
        for path in pathlib.Path(directory).glob("model.ckpt-*")
        if (match := _NAME.fullmatch(path.name)) and path.is_dir()
    )


def read_checkpoint(path, model=None):
    """Reads a checkpoint of this format, see `formats.open_checkpoint`."""
    if not _NAME.fullmatch(path.name):
        found = find_all(path / "train") or find_all(path) or [(0, path)]
        _, path = found[-1]
    if not all((path / f).is_file() for f in (JSON_FILE, WEIGHTS_FILE)):
        raise DamagedError(f"{path} does not exist or is not a checkpoint")
    try:
        values = json.loads((path / JSON_FILE).read_text())
        json_digest = values.pop("sha256_of_this")
        digests = _json_digest(values), _file_digest(path / WEIGHTS_FILE)
        if digests != (json_digest, values["sha256"]):
            raise ValueError("a checksum differs")
    except Exception as error:
        # What cannot be read for the moment is not damaged.
        if isinstance(error, OSError) and error.errno != errno.ENOENT:
            raise
        raise DamagedError(f"{path}: no valid checkpoint: {error}") from error
    with user_errors(path):
        if values.get("format") != FORMAT:  # that of version 1.0.0 was 1
            raise ValueError(f"format {values.get('format')}, not {FORMAT}")
        require(values, EXAMPLES["checkpoint"])
        saved, settings = values["architecture"], values["training"]
        name, shape = saved["model"], ImageShape(**saved["shape"])
        if is_external(name) and name != model:
            raise UserError(
                f"{path} needs a model to import: add --model={name}"
            )
        given, cls = saved["hparams"], find_model(name).hparams
        kinds = {
            key: spec.kind(-(2**63))  # any number
            for key, spec in flag_specs(cls).items()
            if given.get(key, spec.default) != spec.default
        }
        require(given, kinds)
        hparams = cls(**given)
        architecture = Architecture(name, shape, saved["num_targets"], hparams)
        names, trained = values.get("class_names"), values["trained"]
    step = values["step"]
    return Checkpoint(step, architecture, settings, names, trained, path)


def latest_valid(directory, model=None, quarantine=False):
    """The newest `Checkpoint` that is not damaged, or None.

    With `quarantine`, renames newer ones, so that their steps can be saved
    again, or raises UserError if all are damaged.
    """
    damaged = []
    for _, path in reversed(find_all(directory)):
        try:
            checkpoint = read_checkpoint(path, model)
        except DamagedError as error:
            print(f"Warning: {error}", flush=True)
            damaged.append(path)
            continue
        for bad in damaged if quarantine else ():
            bad.rename(bad.with_name(f"{bad.name}.damaged-{os.getpid()}"))
        return checkpoint
    if damaged and quarantine:
        raise UserError(f"all checkpoints in {directory} are damaged")
    return None


def save(directory, model, checkpoint):
    """Writes a compiled model and its `Checkpoint`; returns the path.

    Raises UserError if the path exists or cannot be written.
    """
    path = checkpoint_path(directory, checkpoint.step)
    with atomic_write(path) as partial:
        partial.mkdir()
        weights = partial / WEIGHTS_FILE
        # HDF5 may end the process when the disk is full: reserve space.
        variables = [*model.variables, *model.optimizer.variables]
        size = 4 * sum(math.prod(v.shape) for v in variables) + 2**20  # layout
        with open(weights, "wb") as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            else:  # macOS and Windows
                for _ in range(0, size, 2**20):
                    file.write(bytes(2**20))
        model.save_weights(weights, overwrite=True)
        values = {
            "format": FORMAT,
            "step": checkpoint.step,
            "architecture": dataclasses.asdict(checkpoint.architecture),
            "training": checkpoint.run_settings,
            "class_names": checkpoint.class_names,
            "trained": trained_weights(model),
            "sha256": _file_digest(weights),
        }
        values["sha256_of_this"] = _json_digest(values)
        (partial / JSON_FILE).write_text(json.dumps(values, indent=2) + "\n")
    return path


def remove_old(directory, keep, best_step=None):
    """Removes checkpoints except the newest `keep` and that of `best_step`."""
    for step, old in find_all(directory)[:-keep]:
        if step != best_step:
            # Renamed first: readers see all of it or nothing.
            removed = old.with_name(f".{old.name}.removed.partial")
            with contextlib.suppress(PermissionError):  # Windows, if it is read
                old.rename(removed)
                shutil.rmtree(removed, ignore_errors=True)


def _file_digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _json_digest(values):
    text = json.dumps(values, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
