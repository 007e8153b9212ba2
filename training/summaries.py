"""Writes TensorBoard event files, with the reference's tags, and curve.csv."""

import contextlib
import dataclasses
import pathlib
import time

import keras
import numpy as np
import tensorflow as tf
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.plugins.histogram.metadata import create_summary_metadata
from tensorboard.plugins.hparams import api as hparams_api

from common.documents import complete_rows
from common.errors import writing
from common.files import atomic_write, write_file
from config import RUN_SETTINGS
from input_data import keys
from training.tf1_checkpoint import tf1_name

# Images in one `reconstruction` summary.
_NUM_IMAGES = 10


class SummaryWriter:
    """Writes summaries to one directory."""

    def __init__(self, directory):
        self._directory = pathlib.Path(directory)
        # A damaged file is an error now, not after the first training steps.
        path = self._directory / "curve.csv"
        self._curve = Curve(path) if path.exists() else None
        with writing(directory):
            self._writer = tf.summary.create_file_writer(str(directory))

    @contextlib.contextmanager
    def _writing(self):
        with writing(self._directory):
            with self._writer.as_default():
                yield
            self._writer.flush()

    def scalars(self, values, step):
        """Writes values by tag, and any loss and accuracy to curve.csv."""
        with self._writing():
            for tag, value in values.items():
                tf.summary.scalar(tag, value, step)
        if {"loss", "accuracy"} <= values.keys():
            if self._curve is None:
                self._curve = Curve(self._directory / "curve.csv")
            self._curve.add(step, values["loss"], values["accuracy"])

    def hparams(self, checkpoint):
        """Writes a `Checkpoint`'s settings for TensorBoard's HParams page.

        TensorBoard reads settings only from the event file whose name sorts
        first. Settings therefore have their own file, which each call replaces.
        """
        architecture = checkpoint.architecture
        settings = {
            "model": architecture.model,
            "num_targets": architecture.num_targets,
            **dataclasses.asdict(architecture.hparams),
        }
        settings |= {k: checkpoint.run_settings.get(k) for k in RUN_SETTINGS}
        settings = {k: v for k, v in settings.items() if v is not None}
        # Runs of one trial become one row.
        trial = str(self._directory.resolve())
        summary = hparams_api.hparams_pb(settings, trial_id=trial)
        event = Event(wall_time=time.time(), summary=summary)
        path = self._directory / "events.out.tfevents.0.hparams"
        with (
            atomic_write(path, replace=True) as partial,
            tf.io.TFRecordWriter(str(partial)) as file,
        ):
            file.write(event.SerializeToString())

    def image(self, tag, png, step):
        """Writes a picture; `png` is the content of a PNG file, as bytes."""
        image = tf.io.decode_png(png, channels=3)
        with self._writing():
            tf.summary.image(tag, image[tf.newaxis], step)

    def layers(self, model, images, step):
        """Writes statistics of each weight and of each layer's output."""
        activations = model.activations(images)
        with self._writing():
            for weight in model.trainable_weights:
                values = _to_numpy(weight)
                tag = tf1_name(weight)
                tf.summary.scalar(f"{tag}/mean", values.mean(), step)
                tf.summary.scalar(f"{tag}/stddev", values.std(), step)
                tf.summary.scalar(f"{tag}/min", values.min(), step)
                tf.summary.scalar(f"{tag}/max", values.max(), step)
                _write_histogram(f"{tag}/histogram", values, step)
            for name, tensor in activations.items():
                values = _to_numpy(tensor)
                _write_histogram(f"{name}/activation", values, step)
                zeros = np.mean(values == 0)
                tf.summary.scalar(f"{name}/sparsity", zeros, step)

    def reconstructions(self, model, x, y, step):
        """Writes input, target and reconstruction, one below the other.

        Images of two objects have a second column for the second object.
        """
        from visualization.drawing import to_rgb  # it imports Matplotlib

        images, outputs = x[keys.IMAGES], model(x)
        columns = [
            np.concatenate([*map(_to_numpy, (images, y[n], outputs[n]))], 1)
            for n in keys.RECONS_BY_TARGET
            if n in outputs
        ]
        if not columns:
            return
        both = np.concatenate(columns, axis=2)[:_NUM_IMAGES]
        pictures = np.stack([to_rgb(image) for image in both])
        with self._writing():
            tf.summary.image("reconstruction", pictures, step, _NUM_IMAGES)


class Curve:
    """Loss and accuracy in a CSV file; a repeated step replaces its old row."""

    def __init__(self, path):
        self._path = path
        kinds = int, float, float
        rows = complete_rows(path, *kinds) if path.exists() else []
        self._rows = {int(row.partition(",")[0]): row for row in rows}
        self._rewrite()

    def _rewrite(self):
        self._rows = dict(sorted(self._rows.items()))
        lines = ["step,loss,accuracy", *self._rows.values()]
        write_file(self._path, "".join(f"{line}\n" for line in lines))

    def add(self, step, loss, accuracy):
        is_next = step > next(reversed(self._rows), -1)
        self._rows[step] = f"{step},{loss:.6g},{accuracy:.6g}"
        if is_next:
            with writing(self._path), self._path.open("a") as file:
                file.write(f"{self._rows[step]}\n")
        else:
            self._rewrite()


def _write_histogram(tag, values, step):
    """Like tf.summary.histogram, which takes gigabytes for large weights."""
    # float64, as 30 edges do not fit between neighboring float32 values.
    finite = values[np.isfinite(values)].astype("float64")
    counts, edges = np.histogram(finite, bins=30)
    tf.summary.write(
        tag,
        np.stack([edges[:-1], edges[1:], counts], axis=1),
        step,
        create_summary_metadata(display_name=None, description=None),
    )


def _to_numpy(tensor):
    return keras.ops.convert_to_numpy(keras.ops.cast(tensor, "float32"))
