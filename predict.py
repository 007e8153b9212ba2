"""Predicts the classes of image files by a trained network, or exports it.

  python predict.py --checkpoint=/tmp/mnist/train/model.ckpt-1000 seven.png
  python predict.py --checkpoint=... --format=json folder > lengths.jsonl
  python predict.py --checkpoint=... --invert - < scan.jpg
  python predict.py --checkpoint=... --export=/tmp/mnist.keras

--help lists the flags.
"""

import concurrent.futures
import functools
import json
import os
import pathlib
import sys

from absl import flags as absl_flags
from absl import logging

from common import flags
from common.errors import UserError, reading
from common.files import atomic_write
from common.startup import load_backend
from config import EVAL_BATCH_SIZE, Config

# Modules that import TensorFlow are imported in functions, so that --help and
# a wrong flag are answered at once.

_STANDARD_INPUT = "-"
# Lengths above it count as present, see `training.scores`.
PRESENT_LENGTH = 0.5


def list_files(arguments):
    """Files, and the files in folders and their sub-folders, in order.

    Hidden files and folders are skipped.

    Args:
      arguments: list of paths, or - for standard input.

    Returns:
      List of strings; a folder without files stays in it.
    """
    files = []
    for argument in arguments:
        names = []
        for path, folders, of_folder in os.walk(argument):
            folders[:] = sorted(f for f in folders if not f.startswith("."))
            names += [
                os.path.join(path, name)
                for name in sorted(of_folder)
                if not name.startswith(".")
            ]
        files += names or [argument]
    return files


def predict_files(files, network, prepare):
    """Generates (file, logits), or (file, `UserError`) for unreadable files.

    Args:
      files: list of strings, as of `list_files`.
      network: `keras.Model`, as of `inference.functional`.
      prepare: function of the content and the name of a file that returns an
        input of the network.
    """
    import numpy as np
    from tqdm import tqdm

    from input_data import features as keys

    def read(file):
        try:
            if file == _STANDARD_INPUT:
                return prepare(sys.stdin.buffer.read(), "standard input")
            with reading(file):
                content = pathlib.Path(file).read_bytes()
            return prepare(content, file)
        except UserError as error:
            return error

    with (
        concurrent.futures.ThreadPoolExecutor() as executor,
        tqdm(
            total=len(files),
            unit="image",
            disable=len(files) <= EVAL_BATCH_SIZE,
            mininterval=0.1 if sys.stderr.isatty() else 10,
        ) as progress,
    ):
        for start in range(0, len(files), EVAL_BATCH_SIZE):
            names = files[start : start + EVAL_BATCH_SIZE]
            results = list(executor.map(read, names))
            are_read = [not isinstance(r, UserError) for r in results]
            if any(are_read):
                images = np.stack(
                    [r for r, ok in zip(results, are_read, strict=True) if ok]
                )
                logits = iter(network.predict_on_batch(images)[keys.LOGITS])
                results = [
                    next(logits) if ok else r
                    for r, ok in zip(results, are_read, strict=True)
                ]
            yield from zip(names, results, strict=True)
            progress.update(len(names))


def table_row(width, names, file, best, values, note=""):
    """A line of the table.

    Args:
      width: int, of the first column.
      names: list of strings, the classes.
      file: string.
      best: list of pairs of strings, predicted classes and their values.
      values: list of strings, one for each class.
      note: string.
    """
    class_width = max(map(len, ["class", *names]))
    cells = [f"{file:{width}}"]
    for name, value in best:
        cells += [f"{name:{class_width}}", f"{value:>7}"]
    for name, value in zip(names, values, strict=True):
        cells.append(f"{value:>{max(len(name), 7)}}")
    return "  ".join([*cells, note]).rstrip()


class Table:
    """Prints predictions as the rows of a table.

    Args:
      files: list of strings, all files that may get a row.
      names: list of strings, the classes.
      num_targets: int.
      kind: string, "length" or "logit": what the values are.
    """

    def __init__(self, files, names, num_targets, kind):
        self._width = max(map(len, ["file", *files]))
        self._names = names
        self._kind = kind
        self._header = [("class", kind)] * num_targets

    def print(self, file, classes, values):
        """Prints a row, and before the first one the header."""
        if self._header:
            header = self._header, self._names
            print(table_row(self._width, self._names, "file", *header))
            self._header = None
        best = [(self._names[c], f"{values[c]:.3f}") for c in classes]
        note = ""
        num_present = int((values[classes] > PRESENT_LENGTH).sum())
        if self._kind == "length" and num_present < len(classes):
            number = "only one" if num_present else "no"
            note = f"{number} capsule is longer than {PRESENT_LENGTH}"
        texts = [f"{value:.3f}" for value in values]
        print(table_row(self._width, self._names, file, best, texts, note))


class JsonLines:
    """Prints predictions as JSON documents, one per line; see docs/predict.md.

    Args:
      names: list of strings, the classes.
      kind: string, "length" or "logit".
    """

    def __init__(self, names, kind):
        self._names = names
        self._kind = kind

    def print(self, file, classes, values):
        """Prints a document."""
        numbers = [round(float(value), 7) for value in values]
        predictions = []
        for index in classes:
            prediction = {
                "class": self._names[index],
                self._kind: numbers[index],
            }
            if self._kind == "length":
                prediction["present"] = bool(numbers[index] > PRESENT_LENGTH)
            predictions.append(prediction)
        by_class = dict(zip(self._names, numbers, strict=True))
        document = {
            "file": file,
            "predictions": predictions,
            f"{self._kind}s": by_class,
        }
        print(json.dumps(document))


def export(path, network):
    """Writes a network as a .keras file, else as a SavedModel."""
    with atomic_write(path) as partial:
        if partial.suffix == ".keras":
            network.save(partial)
        else:
            network.export(partial, format="tf_saved_model", verbose=False)
    print(f"Exported to {path}", file=sys.stderr)


def class_names(opened, names):
    """The names of the classes: `names`, the checkpoint's, or numbers."""
    count = opened.architecture.shape.num_classes
    if names and len(set(names)) != count:
        raise UserError(f"--class_names: the network has {count} classes")
    return list(names or opened.class_names or map(str, range(count)))


def define_flags():
    """Defines the flags of this command."""
    flags.define(Config, ["dataset", "num_targets"])
    absl_flags.DEFINE_string(
        "checkpoint", None, "The checkpoint, such as DIR/train/model.ckpt-1000."
    )
    absl_flags.DEFINE_list(
        "class_names",
        None,
        "Names of the classes, separated by commas. Default: the checkpoint's, "
        "else numbers.",
    )
    absl_flags.DEFINE_string(
        "export",
        None,
        "Where to write the network: a file for Keras if the name ends in "
        ".keras, else the folder of a SavedModel.",
    )
    absl_flags.DEFINE_enum(
        "format",
        "table",
        ["table", "json"],
        "What to print: a table, or one JSON document per line.",
    )
    absl_flags.DEFINE_bool(
        "invert", False, "Whether images are dark on bright, such as on paper."
    )


def main(arguments):
    """Exports the network, and predicts the files of the arguments."""
    values = absl_flags.FLAGS
    if not values.checkpoint:
        raise UserError("--checkpoint is required")
    if not (arguments or values.export):
        raise UserError("name images, folders of images or -, or use --export")
    logging.set_verbosity(logging.WARNING)  # TensorFlow reports exports
    load_backend()
    from input_data import features as keys
    from input_data import registry
    from training import devices
    from training.checkpoint import open_checkpoint
    from training.inference import functional, preparation
    from training.scores import predicted_classes

    with devices.use(Config(num_processes=1), "predict.py"):
        opened = open_checkpoint(values.checkpoint)
        architecture = opened.architecture
        dataset = opened.training.get("dataset") or values.dataset
        if architecture is None or dataset is None:
            raise UserError(
                f"{opened.path} does not record its network or data set; "
                "convert it by python -m training.tf1_checkpoint, and add "
                "--dataset"
            )
        names = class_names(opened, values.class_names)
        prepare = preparation(
            opened.training,
            architecture.shape,
            registry.find(dataset),
            architecture.num_targets,
        )
        model = architecture.build()
        opened.load(model, architecture)
        network = functional(model, architecture.shape)
        if values.export:
            export(values.export, network)
        files = list_files(arguments)
        num_targets = values.num_targets or architecture.num_targets
        kind = "length" if keys.CAPSULES in network.output else "logit"
        table = Table(files, names, num_targets, kind)
        printer = JsonLines(names, kind) if values.format == "json" else table
        num_unreadable = 0
        for file, result in predict_files(
            files, network, functools.partial(prepare, invert=values.invert)
        ):
            if isinstance(result, UserError):
                num_unreadable += 1
                print(f"predict.py: {result}", file=sys.stderr, flush=True)
                continue
            classes = predicted_classes(result, num_targets)
            printer.print(file, classes, result)
        return 1 if num_unreadable else 0


if __name__ == "__main__":
    define_flags()
    flags.run(main, takes_arguments=True)
