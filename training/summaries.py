"""TensorBoard event files with the reference's tags, and curve.csv."""

import contextlib
import dataclasses
import pathlib

import keras
import numpy as np
import tensorflow as tf
from tensorboard.plugins.histogram.metadata import create_summary_metadata
from tensorboard.plugins.hparams import api as hparams_api

from common.errors import reading, writing
from common.files import write_file
from input_data import features as keys

_NUM_BUCKETS = 30
# Images in one `reconstruction` summary.
_NUM_IMAGES = 10
# Names of the weights of Keras' layers, and the reference's.
_LEAVES = {"kernel": "weights", "bias": "biases"}
_CURVE_COLUMNS = "step,loss,accuracy\n"


class SummaryWriter:
    """Writes summaries to one directory.

    Args:
      directory: path, `<summary_dir>/train` or another folder beside it.
    """

    def __init__(self, directory):
        self._directory = pathlib.Path(directory)
        self._curve = None
        with writing(directory):
            self._writer = tf.summary.create_file_writer(str(directory))

    @contextlib.contextmanager
    def _writing(self):
        with writing(self._directory):
            with self._writer.as_default():
                yield
            self._writer.flush()

    def scalars(self, values, step):
        """Writes a dict from tag to number; loss and accuracy to curve.csv."""
        with self._writing():
            for tag, value in values.items():
                tf.summary.scalar(tag, value, step)
        if {"loss", "accuracy"} <= values.keys():
            if self._curve is None:
                self._curve = Curve(self._directory / "curve.csv")
            self._curve.add(step, values["loss"], values["accuracy"])

    def hparams(self, metadata):
        """Writes the settings for TensorBoard's HParams page.

        Args:
          metadata: `checkpoint.Metadata`.
        """
        settings = {
            "model": metadata.architecture.model,
            "num_targets": metadata.architecture.num_targets,
            **dataclasses.asdict(metadata.architecture.hparams),
            **metadata.training,
        }
        settings = {k: v for k, v in settings.items() if v is not None}
        folder = self._directory.resolve()
        with self._writing():
            hparams_api.hparams(
                settings, trial_id=f"{folder.parent.name}/{folder.name}"
            )

    def image(self, tag, png, step):
        """Writes a picture, the bytes of a PNG file."""
        image = tf.io.decode_png(png, channels=3)
        with self._writing():
            tf.summary.image(tag, image[tf.newaxis], step)

    def weights(self, model, step):
        """Writes mean, stddev, min, max and a histogram of each weight."""
        with self._writing():
            for weight in model.trainable_weights:
                values = _to_numpy(weight)
                tag = tf1_name(weight)
                for name in ("mean", "std", "min", "max"):
                    label = "stddev" if name == "std" else name
                    value = getattr(values, name)()
                    tf.summary.scalar(f"{tag}/{label}", value, step)
                _write_histogram(f"{tag}/histogram", values, step)

    def activations(self, model, x, step):
        """Writes a histogram and the share of zeros of each layer's output."""
        activations = model.activations(x[keys.IMAGES])
        with self._writing():
            for name, tensor in activations.items():
                values = _to_numpy(tensor)
                _write_histogram(f"{name}/activation", values, step)
                tf.summary.scalar(
                    f"{name}/sparsity", np.mean(values == 0), step
                )

    def reconstructions(self, model, x, y, step):
        """Writes input, target and reconstruction, stacked.

        The second target stands beside the first.
        """
        from visualisation.drawing import to_rgb

        outputs = model(x)
        names = [name for name in keys.RECONS_BY_TARGET if name in outputs]
        if not names:
            return
        columns = [
            np.concatenate(
                [
                    _to_numpy(image)[:_NUM_IMAGES]
                    for image in (x[keys.IMAGES], y[name], outputs[name])
                ],
                axis=1,
            )
            for name in names
        ]
        pictures = [to_rgb(one) for one in np.concatenate(columns, axis=2)]
        with self._writing():
            tf.summary.image(
                "reconstruction",
                np.stack(pictures),
                step,
                max_outputs=_NUM_IMAGES,
            )


def tf1_name(variable):
    """The reference's name of a trainable `keras.Variable` of a model."""
    _, *scopes, leaf = variable.path.split("/")
    return "/".join([*scopes, _LEAVES.get(leaf, leaf)])


class Curve:
    """Loss and accuracy by step in a CSV file.

    After a resume, steps that are repeated replace their earlier rows.

    Args:
      path: `pathlib.Path` of the file, which may exist.
    """

    def __init__(self, path):
        self._path = path
        self._rows = {}
        if path.exists():
            with reading(path):
                lines = path.read_text().splitlines()[1:]
                # A killed process may have left half a line.
                complete = [line for line in lines if line.count(",") == 2]
                self._rows = {int(row.split(",")[0]): row for row in complete}
        self._last = max(self._rows, default=-1)
        self._is_complete = False  # until the first row rewrites the file

    def add(self, step, loss, accuracy):
        """Writes a row."""
        is_next = self._is_complete and step > self._last
        self._last = max(step, self._last)
        self._is_complete = True
        self._rows[step] = f"{step},{loss:.6g},{accuracy:.6g}"
        if is_next:
            with writing(self._path), self._path.open("a") as file:
                file.write(f"{self._rows[step]}\n")
        else:
            rows = [f"{self._rows[s]}\n" for s in sorted(self._rows)]
            write_file(self._path, "".join([_CURVE_COLUMNS, *rows]))


def _write_histogram(tag, values, step):
    """Like tf.summary.histogram, which takes gigabytes for large weights."""
    # float64, as 30 edges do not fit between neighboring float32 values.
    finite = values[np.isfinite(values)].astype("float64")
    counts, edges = np.histogram(finite, _NUM_BUCKETS)
    tf.summary.write(
        tag,
        np.stack([edges[:-1], edges[1:], counts], axis=1),
        step,
        create_summary_metadata(display_name=None, description=None),
    )


def _to_numpy(tensor):
    return keras.ops.convert_to_numpy(keras.ops.cast(tensor, "float32"))


def training_scalars(logs, batch_size):
    """The reference's tags for the running means that `fit` reports.

    `loss` is the reference's total_loss, under the name that evaluations use.
    """
    scalars = {
        "batch_classification_cost": logs["batch_classification_cost"],
        "loss": logs["loss"],
        "total_loss": logs["loss"],
        "accuracy": logs["accuracy"],
        # The reference counts per batch.
        "correct_prediction_batch": logs["accuracy"] * batch_size,
        "almost_correct_batch": logs["almost_accuracy"] * batch_size,
    }
    if "reconstruction_error" in logs:
        scalars["reconstruction_error"] = logs["reconstruction_error"]
    return scalars
