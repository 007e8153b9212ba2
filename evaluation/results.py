"""What evaluations tell: lines or json, and files for TensorBoard."""

import contextlib
import dataclasses
import json
import math
import pathlib
import sys

import numpy as np

from evaluation import learning_curve, pictures
from old.durable import make_folder, remove_leftovers, write_files
from old.text import mean_and_deviation
from training.summaries import SummaryWriter, evaluation_scalars


class Results:
    """A context in which evaluations are told, one after the other.

    With --format=json standard output has one document to a line and nothing
    else; what else is printed in the context goes to standard error.

    Args:
      config: `Config`. With a `summary_dir` results also go to its folder
        test, of held-out training images to its folder validation.
      is_first: bool, whether this process writes files.
    """

    def __init__(self, config, is_first=True):
        self._config = config
        self._is_json = config.format == "json"
        self._images = "held-out" if config.validate else "test"
        self._folder = self._writer = None
        if config.summary_dir and is_first:
            folder = "validation" if config.validate else "test"
            self._folder = pathlib.Path(config.summary_dir) / folder

    def __enter__(self):
        self._stack = contextlib.ExitStack()
        self._output = sys.stdout
        if self._is_json:
            self._stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        return self

    def __exit__(self, *exception):
        self._stack.close()

    def require_curves(self):
        """Raises UserError if a `curve.csv` of the run is another file."""
        if self._folder is not None:
            learning_curve.read(self._folder.parent)

    def prepare(self):
        """Makes the folder and tidies it up, lest that fails after the work.

        Raises:
          UserError: if it cannot be made or read, or see `require_curves`.
        """
        if self._folder is not None and self._writer is None:
            self.require_curves()
            self._writer = SummaryWriter(self._folder)
            for folder in (self._folder.parent, self._folder):
                remove_leftovers(folder)

    def tell(self, title, predictions, checkpoint=None, is_member=False):
        """Tells of one evaluation.

        Args:
          title: string, what was evaluated, to stand before the counts.
          predictions: `Predictions`.
          checkpoint: the opened one that was evaluated; None if it was not
            one alone.
          is_member: bool, whether it is part of an ensemble: no files then.
        """
        spec = predictions.pipeline.spec
        images = "pairs" if spec.num_targets == 2 else "images"
        # Of records nobody knows what they hold.
        kind = "stored" if spec.note else self._images
        images = f"{kind} {images} of {predictions.dataset}"
        score = predictions.score
        # Of an ensemble in lines there is nothing to write.
        if self._is_json or not (is_member or checkpoint is None):
            self.prepare()
        writes = self._writer is not None and not is_member
        if self._is_json:
            document = self._document(images, predictions, checkpoint)
            print(document, file=self._output, flush=True)
            if writes:
                self._write(document, predictions, checkpoint)
        else:
            print(f"{title}{score} ({score.num_examples} {images})", flush=True)
            if self._config.pairs != "overlap":
                print(score.measures, flush=True)
        if writes and checkpoint is not None:
            self._summarise(predictions, checkpoint)

    def tell_mean(self, scores):
        """Tells, in lines, of several checkpoints together.

        Args:
          scores: list of `Score`.
        """
        if not self._is_json:
            percent = mean_and_deviation([s.wrong_percent for s in scores])
            print(
                f"Mean of {len(scores)}: wrong percent: {percent}%", flush=True
            )

    def _document(self, images, predictions, checkpoint):
        score = predictions.score
        path = checkpoint.path if checkpoint else self._config.checkpoint
        return json.dumps(
            {
                "checkpoint": str(path),
                "step": checkpoint.step if checkpoint else None,
                "images": images,
                **dataclasses.asdict(score),
                "loss": _finite(score.loss),
                "wrong": score.wrong,
                "wrong_percent": score.wrong_percent,
                **_by_class(predictions),
            }
        )

    def _write(self, document, predictions, checkpoint):
        name = checkpoint.path.name if checkpoint else "ensemble"
        files = {f"{name}.json": f"{document}\n".encode()}
        matrix = pictures.confusion_matrix_of(predictions, name)
        if matrix is not None:
            files[f"{name}.confusion_matrix.png"] = matrix
        write_files(make_folder(self._folder), files)

    def _summarise(self, predictions, checkpoint):
        """Writes one evaluation for TensorBoard, and the learning curve."""
        step = checkpoint.step
        self._writer.scalars(evaluation_scalars(predictions.score), step)
        if checkpoint.architecture is not None:  # a TF1 one tells nothing
            self._writer.hparams(checkpoint)
        for name, png in pictures.draw(predictions, step).items():
            self._writer.image(name, png, step)
        learning_curve.write(self._config.summary_dir)


def _finite(number):
    """A number as JSON can have it: None for NaN and infinity."""
    return number if number is not None and math.isfinite(number) else None


def _by_class(predictions):
    """How each class fared: dict for json.

    Its keys: classes, a list of dicts of `class`, the name; `labels`, how
    often it is in the images; `found`, how often it was predicted then; and
    `predictions`, how often it was predicted. confusion_matrix, a list of
    rows, see `counts.confusion_matrix`.
    """
    matrix = predictions.confusion_matrix
    counts = zip(
        predictions.pipeline.spec.names,
        predictions.labels.sum(axis=0),
        np.diag(matrix),
        matrix.sum(axis=0),
        strict=True,
    )
    return {
        "classes": [
            {
                "class": name,
                "labels": int(labels),
                "found": int(found),
                "predictions": float(predicted),
            }
            for name, labels, found, predicted in counts
        ],
        "confusion_matrix": matrix.tolist(),
    }
