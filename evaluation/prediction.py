"""Classes of images in files: found, read, predicted and printed."""

import concurrent.futures
import dataclasses
import json
import os
import pathlib
import sys

import numpy as np

import checkpoints
from evaluation.counts import PRESENT_LENGTH, predicted_classes
from evaluation.export import functional
from input_data import features as keys
from input_data.formats import image_file
from input_data.transforms.fitting import fit, size_before
from old.errors import UserError
from old.progress import Progress
from old.text import one_line, printable
from training.config import EVAL_BATCH_SIZE

STANDARD_INPUT = "-"


def load_network(path):
    """Loads the network of a checkpoint.

    Args:
      path: path of a checkpoint directory.

    Returns:
      Pair of a `keras.Model`, as `export.functional` makes it, and the
      opened checkpoint.

    Raises:
      UserError: if there is no such checkpoint, it is damaged or a TF1 one.
    """
    checkpoint = checkpoints.open(path)
    architecture = checkpoint.architecture
    if architecture is None:
        raise UserError(
            f"{path} is a TF1 checkpoint, which does not describe its "
            "network: convert it by python -m training.tf1_checkpoint "
            f"{path} DIR, with the flags of its network, and name the result"
        )
    model = architecture.build()
    checkpoint.load(model, architecture)
    return functional(model, architecture.shape), checkpoint


def trained_on(checkpoint, dataset):
    """The data set that a network was trained on.

    Args:
      checkpoint: `Checkpoint`.
      dataset: name of the data set as the user says, or None.

    Raises:
      UserError: if the checkpoint contradicts the user, or neither knows.
    """
    known = checkpoint.training.get("dataset")
    if known is None and dataset is None:
        raise UserError(
            f"{checkpoint.path} does not tell which data set it was trained "
            "on, which decides how images are prepared: name it by --dataset"
        )
    if None not in (known, dataset) and known != dataset:
        raise UserError(
            f"--dataset={dataset}, but {checkpoint.path} was trained on "
            f"{known}: leave --dataset out"
        )
    return known or dataset


def preparation(looks, shape, data_set, num_targets):
    """How image files become what a network takes.

    Args:
      looks: dict of image_size, pad and distort, as a checkpoint records
        them; any may be missing or None.
      shape: `features.ImageShape` of the network.
      data_set: `DataSet` that it was trained on.
      num_targets: int, objects in its images.

    Returns:
      Function of the content of a file, bytes, its name, and whether dark is
      to be turned to bright, which gives float32 [height, width, depth] of
      `shape`, or raises `UserError`.

    Raises:
      UserError: for a padding that such images cannot have.
    """
    stretched = looks.get("image_size") is not None
    cropped = bool(looks.get("distort"))
    # Of an image of two objects each was padded.
    pad = looks.get("pad") or 0 if num_targets == 1 else 0
    size = shape.height, shape.width
    if pad < 0 or min(size_before(size, pad, cropped)) < 1:
        raise UserError(
            f"images of {size[0]}x{size[1]} cannot have been padded by {pad}"
        )

    def prepare(content, name, invert):
        color = shape.depth == 3
        with image_file.decoded(content, name, color, invert) as image:
            return fit(image, shape, data_set, stretched, pad, cropped)

    return prepare


@dataclasses.dataclass(frozen=True)
class Prediction:
    """What the network says of one image.

    Attributes:
      name: string, the file.
      values: float array [classes]: capsule lengths, or logits of a network
        without capsules.
      num_targets: int, objects in the image.
    """

    name: str
    values: np.ndarray
    num_targets: int

    @property
    def classes(self):
        """The classes of the largest values, of equals the lower first."""
        return predicted_classes(self.values, self.num_targets).tolist()

    @property
    def num_present(self):
        """How many of those are longer than `PRESENT_LENGTH`."""
        return int((self.values[self.classes] > PRESENT_LENGTH).sum())


def list_files(arguments, complain):
    """The files that are named, and those in folders that are named.

    Args:
      arguments: list of paths of files and folders, or `STANDARD_INPUT`. Of a
        folder all files are taken, also those in its sub-folders, in the
        order of their names, but hidden ones.
      complain: function of a `UserError`, called for each folder that is
        empty, a link in another one, or cannot be read.

    Returns:
      List of strings, files that may or may not be there.
    """

    def cannot_read(error):
        reason = f"{error.filename} cannot be read: {error.strerror}"
        complain(UserError(reason))

    files = []
    for argument in arguments:
        if argument == STANDARD_INPUT or not os.path.isdir(argument):
            files.append(argument)
            continue
        found = []
        for path, folders, names in os.walk(argument, onerror=cannot_read):
            folders[:] = _shown(folders)
            for folder in folders:
                link = os.path.join(path, folder)
                if os.path.islink(link):  # which may lead back here
                    reason = f"{link} is a link to a folder: name it itself"
                    complain(UserError(reason))
            found += [os.path.join(path, name) for name in _shown(names)]
        if not found:
            complain(UserError(f"{argument} is a folder without files"))
        files += found
    return files


def _shown(names):
    return sorted(name for name in names if not name.startswith("."))


def predict_files(files, network, prepare, num_targets, complain):
    """Predicts the images in files, a batch at a time.

    Shows its progress on standard error if there are several batches.

    Args:
      files: list of strings, as `list_files` gives them.
      network: `keras.Model`, as `load_network` gives it.
      prepare: function of the content of a file, bytes, and its name, that
        gives the image as the network takes it or raises `UserError`.
      num_targets: int, objects in an image.
      complain: function of a `UserError`, called for each file that is not an
        image; the others are still done.

    Yields:
      `Prediction` of each image, in the order of the files.

    Raises:
      UserError: if the network's numbers are not finite.
    """

    def read(name):
        called = "standard input" if name == STANDARD_INPUT else name
        try:
            return prepare(_read_bytes(name), called)
        except UserError as error:
            return error

    progress = None
    if len(files) > EVAL_BATCH_SIZE:
        progress = Progress(0, len(files), name="image", stream=sys.stderr)
    with concurrent.futures.ThreadPoolExecutor() as executor:
        for start in range(0, len(files), EVAL_BATCH_SIZE):
            names = files[start : start + EVAL_BATCH_SIZE]
            read_images = list(executor.map(read, names))
            if progress:
                progress.clear()
            images = {}
            for place, image in enumerate(read_images):
                if isinstance(image, UserError):
                    complain(image)
                else:
                    images[place] = image
            if images:
                values = _predict(network, np.stack(list(images.values())))
                for place, row in zip(images, values, strict=True):
                    yield Prediction(names[place], row, num_targets)
            if progress:
                progress.update(start + len(names), {})


def _read_bytes(name):
    if name == STANDARD_INPUT:
        # One byte more than an image may have: that is told when it is opened.
        return sys.stdin.buffer.read(image_file.MAX_BYTES + 1)
    return image_file.read(pathlib.Path(name))


def _predict(network, images):
    values = network.predict_on_batch(images)[keys.LOGITS]
    require_finite(values)
    return values


def require_finite(values):
    """Raises UserError if an array of a network's has NaN or infinity."""
    if not np.isfinite(values).all():
        raise UserError(
            "the network gives numbers that are not finite: its weights were "
            "saved by a training with --allow_nonfinite"
        )


class Table:
    """Prints predictions as a table, row by row.

    Args:
      files: list of strings, all files there may be rows for.
      class_names: list of strings.
      num_targets: int.
      has_capsules: bool, whether values are lengths of capsules.
    """

    def __init__(self, files, class_names, num_targets, has_capsules):
        self._names = [printable(name) for name in class_names]
        self._has_capsules = has_capsules
        self._file_width = max(len(one_line(n)) for n in ("file", *files))
        self._class_width = max(len(name) for name in ("class", *self._names))
        best = ["class", "length" if has_capsules else "logit"] * num_targets
        self._header = self._row("file", best, self._names)

    def print(self, prediction):
        """Prints the row of a `Prediction`, before the first the header."""
        if self._header:
            print(self._header)
            self._header = None
        best = []
        for index in prediction.classes:
            best += [self._names[index], f"{prediction.values[index]:.3f}"]
        values = [f"{value:.3f}" for value in prediction.values]
        file, note = one_line(prediction.name), self._note(prediction)
        print(self._row(file, best, values, note))

    def _row(self, file, best, values, note=""):
        cells = [f"{file:{self._file_width}}"]
        for name, value in zip(best[::2], best[1::2], strict=True):
            cells += [f"{name:{self._class_width}}", f"{value:>7}"]
        cells += [
            f"{value:>{max(len(name), 7)}}"
            for name, value in zip(self._names, values, strict=True)
        ]
        return "  ".join([*cells, note]).rstrip()

    def _note(self, prediction):
        missing = prediction.num_targets - prediction.num_present
        if not self._has_capsules or not missing:
            return ""
        number = "only one" if prediction.num_present else "no"
        return f"{number} capsule is longer than {PRESENT_LENGTH}"


class JsonLines:
    """Prints predictions as JSON documents, one to a line.

    Args:
      class_names: list of strings.
      has_capsules: bool, whether values are lengths of capsules.
    """

    def __init__(self, class_names, has_capsules):
        self._names = class_names
        self._has_capsules = has_capsules

    def print(self, prediction):
        """Prints a `Prediction`.

        The keys: `file`; `predictions`, for each target a dict with `class`,
        `length` and `present`, whether that is longer than `PRESENT_LENGTH`;
        `lengths`, by class. Without capsules they are `logit` and `logits`,
        and there is no `present`.
        """
        kind = "length" if self._has_capsules else "logit"
        values = [round(float(value), 7) for value in prediction.values]
        predictions = []
        for index in prediction.classes:
            found = {"class": self._names[index], kind: values[index]}
            if self._has_capsules:
                found["present"] = bool(values[index] > PRESENT_LENGTH)
            predictions.append(found)
        print(
            json.dumps(
                {
                    "file": prediction.name,
                    "predictions": predictions,
                    f"{kind}s": dict(zip(self._names, values, strict=True)),
                }
            )
        )


def class_names_of(metadata, names):
    """The names of a network's classes, by default their numbers.

    Args:
      metadata: `Metadata` of its checkpoint, which may know them.
      names: list of strings, the names that the user gives, or None.

    Returns:
      List of strings.

    Raises:
      UserError: if there are not as many, or two are equal.
    """
    num_classes = metadata.architecture.shape.num_classes
    if not names:
        numbers = [str(number) for number in range(num_classes)]
        return metadata.class_names or numbers
    if len(names) != num_classes:
        raise UserError(
            f"--class_names has {len(names)} names, but the network has "
            f"{num_classes} classes"
        )
    if len(set(names)) < num_classes:
        raise UserError("--class_names has a name twice")
    return names
