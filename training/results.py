"""Reports evaluations as text or JSON, and in TensorBoard files."""

import contextlib
import itertools
import os
import pathlib
import sys

from common.files import make_folder, read_json, to_json, write_file, write_json
from input_data import keys
from training.best import best_of
from training.class_report import document, lines
from training.summaries import SummaryWriter
from visualization import evaluation_figures as pictures


class Results(contextlib.ExitStack):
    """A context in which evaluations are reported.

    With --format=json, standard output gets only JSON, one document per line;
    other text goes to standard error. With --summary_dir=DIR, the first process
    writes files to DIR/test or, with --validate, to DIR/validation.
    """

    def __init__(self, config, strategy):
        super().__init__()
        self._config, self._output = config, sys.stdout
        self._is_json = config.format == "json"
        self._folder = self._writer = None
        if config.summary_dir and strategy.is_first:
            folder = "validation" if config.validate else "test"
            self._folder = make_folder(pathlib.Path(config.summary_dir, folder))
        self._first = self._folder
        if self._is_json:
            self.enter_context(contextlib.redirect_stdout(sys.stderr))

    def report(self, title, predictions, step=None, draws=True):
        """Reports `Predictions`; text output begins with `title`.

        `step` is the step of the summaries, or None to write no files. `draws`
        says whether to draw pictures, which can take longer than evaluating.
        """
        spec, score = predictions.pipeline.spec, predictions.score
        kind = "held-out" if self._config.validate else "test"
        if spec.note:  # record files do not tell which images they hold
            kind = "stored"
        noun = "pairs" if spec.num_targets == 2 else "images"
        images = f"{kind} {noun} of {predictions.config.dataset}"
        found = document(images, predictions)
        if self._is_json:
            text = to_json(found)
            print(text, file=self._output, flush=True)
        else:
            print(f"{title}{score} ({score.num_examples} {images})", flush=True)
            if spec.num_targets == 2:
                percent = score.wrong_percent_per_object
                print(f"wrong percent per object: {percent:.2f}%", flush=True)
            if spec.num_targets == keys.SEVERAL_LABELS:
                for name in ("macro", "micro"):
                    texts = (f"{k} {v:.4f}" for k, v in found[name].items())
                    print(name, *texts, flush=True)
            if self._config.pairs != "overlap":
                print(score.pairs_text, flush=True)
            # Members of an ensemble have no step.
            has_table = draws and step is not None
            print(*lines(found, has_table), sep="\n", flush=True)
        if step is None or self._folder is None:
            return
        checkpoint = predictions.checkpoint
        name = checkpoint.path.name if checkpoint else "ensemble"
        self._choose_folder(predictions)
        if self._is_json:
            write_file(self._folder / f"{name}.json", f"{text}\n")
        self._write_summaries(predictions, step)
        if draws:
            try:
                self._draw(predictions, step, name)
            except Exception as error:  # the numbers are complete
                print(f"Warning: {name}: not drawn: {error!r}", flush=True)

    def _choose_folder(self, predictions):
        """Results on other images or of another training go to test_2 etc."""
        config, checkpoint = predictions.config, predictions.checkpoint
        found = {
            "crops": config.crops,
            "num_trials": config.num_trials,
            "dataset": config.dataset,
            "images": predictions.pipeline.evaluation_digest,
        }
        if checkpoint and "id" in checkpoint.run_settings:
            found["training"] = checkpoint.run_settings["id"]
        place = checkpoint.path.parent if checkpoint else config.checkpoint
        kind = "checkpoints" if checkpoint else "ensemble"
        try:
            found[kind] = os.path.relpath(place, config.summary_dir)
        except ValueError:  # another drive of Windows
            found[kind] = os.path.abspath(place)
        folder, name = self._first, self._first.name
        for number in itertools.count(2):
            path = folder / "evaluated"
            before = read_json(path, "evaluated") if path.exists() else {}
            if found | before == before | found:
                break
            folder = self._first.with_name(f"{name}_{number}")
        if folder != self._folder:
            print(f"{self._folder} has other results; these go to {folder}")
            self._folder, self._writer = make_folder(folder), None
        write_json(path, before | found)

    def _write_summaries(self, predictions, step):
        if self._writer is None:
            self._writer = SummaryWriter(self._folder)
        score, checkpoint = predictions.score, predictions.checkpoint
        count = score.num_examples
        scalars = {
            "correct_prediction": score.correct,
            "wrong_prediction": score.wrong,
            "almost_wrong_prediction": count - score.almost_correct,
            "accuracy": score.correct / count,
        }
        if checkpoint:
            cost = predictions.losses[:, 1].mean()
            scalars |= {"loss": score.loss, "total_loss": score.loss}
            scalars["batch_classification_cost"] = cost
        self._writer.scalars(scalars, step)
        if checkpoint and checkpoint.architecture:  # TF1's have none
            self._writer.hparams(checkpoint)

    def _draw(self, predictions, step, name):
        score, spec = predictions.score, predictions.pipeline.spec
        title = f"Step {step}" if predictions.checkpoint else "Ensemble"
        nothing = ["none"] * (spec.num_targets == keys.SEVERAL_LABELS)
        matrix = pictures.confusion_matrix_png(
            predictions.confusion_matrix,
            [*spec.names, *nothing],
            f"{title}: {score.wrong} of {score.num_examples} wrong",
        )
        if matrix is not None:
            self._writer.image("confusion_matrix", matrix, step)
            if self._is_json:
                path = self._folder / f"{name}.confusion_matrix.png"
                write_file(path, matrix)
        if wrong := pictures.wrong_predictions_png(predictions, title):
            self._writer.image("wrong_predictions", wrong, step)
        if predictions.checkpoint:  # an ensemble has no curve
            summary_dir = pathlib.Path(self._config.summary_dir)
            best_step = getattr(best_of(summary_dir / "train"), "step", None)
            curves = pictures.learning_curve_png(summary_dir, best_step)
            write_file(summary_dir / "learning_curve.png", curves)
