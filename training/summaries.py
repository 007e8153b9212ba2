"""Writes TensorBoard event files, with the reference's tags, and curve.csv."""

import contextlib
import dataclasses
import pathlib
import time

import tensorflow as tf
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.plugins.hparams import api as hparams_api

from common.errors import user_errors
from common.files import atomic_write, complete_rows, write_file
from resolve import RECORDED


class SummaryWriter:
    """Writes summaries to one directory."""

    def __init__(self, directory):
        self._directory = pathlib.Path(directory)
        # A damaged file is an error now, not after the first training steps.
        self._curve = Curve(self._directory / "curve.csv")
        with user_errors(f"{directory}: cannot write"):
            self._writer = tf.summary.create_file_writer(str(directory))

    @contextlib.contextmanager
    def open(self):
        """A context in which `tf.summary` writes to the directory."""
        with user_errors(f"{self._directory}: cannot write"):
            with self._writer.as_default():
                yield
            self._writer.flush()

    def scalars(self, values, step):
        """Writes values by tag, and any loss and accuracy to curve.csv."""
        with self.open():
            for tag, value in values.items():
                tf.summary.scalar(tag, value, step)
        if {"loss", "accuracy"} <= values.keys():
            self._curve.add(step, values["loss"], values["accuracy"])

    def hparams(self, checkpoint):
        """Writes a `Checkpoint`'s settings for TensorBoard's HParams page.

        TensorBoard reads them only from the event file whose name sorts first.
        """
        architecture = checkpoint.architecture
        settings = {
            "model": architecture.model,
            "num_targets": architecture.num_targets,
            **dataclasses.asdict(architecture.hparams),
        }
        settings |= {k: checkpoint.run_settings.get(k) for k in RECORDED}
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
        with self.open():
            tf.summary.image(tag, image[tf.newaxis], step)


class Curve:
    """Loss and accuracy in a CSV file; a repeated step replaces its old row."""

    def __init__(self, path):
        kinds = int, float, float
        rows = complete_rows(path, *kinds) if path.exists() else []
        self._rows = {int(row.partition(",")[0]): row for row in rows}
        # The last step of the file, or None: half a line may follow it.
        self._path, self._last = path, None

    def add(self, step, loss, accuracy):
        self._rows[step] = row = f"{step},{loss:.6g},{accuracy:.6g}"
        if self._last is not None and step > self._last:
            with (
                user_errors(f"{self._path}: cannot write"),
                self._path.open("a") as file,
            ):
                file.write(f"{row}\n")
        else:
            rows = (row for _, row in sorted(self._rows.items()))
            text = "\n".join(["step,loss,accuracy", *rows, ""])
            write_file(self._path, text)
        self._last = max(self._rows)
