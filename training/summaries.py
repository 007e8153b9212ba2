"""TensorBoard event files, with the reference's tags."""

import contextlib
import dataclasses
import hashlib
import json
import pathlib
import time

import keras
import numpy as np
import tensorflow as tf
from tensorboard.compat.proto import event_pb2
from tensorboard.plugins.histogram.metadata import create_summary_metadata
from tensorboard.plugins.hparams import api as hparams_plugin

from input_data import features as keys
from models.tf1_variables import tf1_name
from old.durable import make_folder, user_errors, whole_file
from training.curve import Curve
from visualisation.drawing import to_rgb

# Of one histogram, as TensorFlow has them.
_NUM_BUCKETS = 30
# Images of one `reconstruction` summary.
_NUM_IMAGES = 10
# TensorBoard shows the first settings that it finds in a folder, whose files
# it reads in the order of their names.
_HPARAMS_FILE = "events.out.tfevents.0.hparams"


class SummaryWriter:
    """Writes to event files of one directory.

    Every method raises UserError if they cannot be written.

    Args:
      directory: path, `<summary_dir>/train` or another folder beside it; made
        if it is not there.
    """

    def __init__(self, directory):
        self._directory = pathlib.Path(directory)
        self._curve = None
        with self._user_errors():
            self._writer = tf.summary.create_file_writer(str(directory))

    @contextlib.contextmanager
    def _writing(self):
        with self._user_errors():
            with self._writer.as_default():
                yield
            self._writer.flush()

    def _user_errors(self):
        return user_errors(f"event files in {self._directory}")

    def scalars(self, values, step):
        """Writes a dict from tag to number, and flushes the file.

        With a loss and an accuracy among them also to `curve.csv`.
        """
        with self._writing():
            for tag, value in values.items():
                tf.summary.scalar(tag, value, step)
        if {"loss", "accuracy"} <= values.keys():
            if self._curve is None:
                self._curve = Curve(self._directory)
            self._curve.add(step, values["loss"], values["accuracy"])

    def hparams(self, metadata):
        """Writes a run's settings for the HParams page of TensorBoard.

        Training and each evaluation have a row of their own: in one, the page
        would show the mean of what both call `accuracy`. The row has the names
        of the run's folder and of the part, and a number that tells runs of
        the same name apart. Settings replace those that were there: after a
        resume with others, the last metrics are of these.

        Args:
          metadata: `checkpoint.Metadata`; its step does not matter.
        """
        settings = {
            "model": metadata.architecture.model,
            "num_targets": metadata.architecture.num_targets,
            **dataclasses.asdict(metadata.architecture.hparams),
            **metadata.training,
        }
        settings = {k: v for k, v in settings.items() if v is not None}
        described = json.dumps(settings, sort_keys=True).encode()
        number = hashlib.sha256(described).hexdigest()[:6]
        folder = self._directory.resolve()
        row = f"{folder.parent.name}/{folder.name} {number}"
        event = event_pb2.Event(wall_time=time.time())
        event.summary.CopyFrom(
            hparams_plugin.hparams_pb(settings, trial_id=row)
        )
        path = make_folder(self._directory) / _HPARAMS_FILE
        with (
            whole_file(path, replace=True) as partial,
            tf.io.TFRecordWriter(str(partial)) as file,
        ):
            file.write(event.SerializeToString())

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
        """Writes a histogram and the share of zeros of what layers give."""
        activations = model.activations(x[keys.IMAGES])
        with self._writing():
            for name, tensor in activations.items():
                values = _to_numpy(tensor)
                _write_histogram(f"{name}/activation", values, step)
                tf.summary.scalar(
                    f"{name}/sparsity", np.mean(values == 0), step
                )

    def reconstructions(self, model, x, y, step):
        """Writes images: input, target and remake stacked, if it remakes.

        With two targets, those of the second stand beside the first's. What
        TensorBoard cannot show, two channels and values outside of [0, 1], is
        drawn as `to_rgb` does.
        """
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


def _write_histogram(tag, values, step):
    """As tf.summary.histogram, which takes gigabytes for millions of values.

    Infinite values and NaN are left out.
    """
    # Between float32 values a few roundings apart 30 edges do not fit.
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
    """The reference's tags for the running means of `Classifier`.

    `loss` is its total_loss, under the name that evaluation shares.

    Args:
      logs: dict that `fit` reports.
      batch_size: int; the reference counts right predictions per batch.
    """
    scalars = {
        "batch_classification_cost": logs["batch_classification_cost"],
        "loss": logs["loss"],
        "total_loss": logs["loss"],
        "accuracy": logs["accuracy"],
        "correct_prediction_batch": logs["accuracy"] * batch_size,
        "almost_correct_batch": logs["almost_accuracy"] * batch_size,
    }
    if "reconstruction_error" in logs:
        scalars["reconstruction_error"] = logs["reconstruction_error"]
    return scalars


def evaluation_scalars(score):
    """The reference's tags for a `Score`, and those that training has too."""
    return {
        "correct_prediction": score.correct,
        "wrong_prediction": score.wrong,
        "almost_wrong_prediction": score.almost_wrong,
        "accuracy": score.correct / score.num_examples,
        "loss": score.loss,
    }
