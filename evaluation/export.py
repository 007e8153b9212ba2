"""Writes a trained network for use without this project's training code."""

import contextlib
import os
import pathlib
import shutil
import tempfile

import keras
import tensorflow as tf

from common.durable import flush
from common.errors import UserError
from input_data import features as keys

KERAS_SUFFIX = ".keras"


def functional(model, shape):
    """The network as a functional model: images in, a dict of outputs out.

    It shares its layers and weights with `model`. Its graph is made of
    Keras' own layers and operations and those of `layers`: to load it from a
    file takes no more than `import layers`.

    Args:
      model: `keras.Model` of the registry.
      shape: `features.ImageShape`.

    Returns:
      `keras.Model` that takes images [B, H, W, C], prepared as in training,
      and gives a dict of what `model` gives without labels: logits (of a
      capsule network the capsules' lengths), capsules and recons (the remake
      from the longest capsule), where the network has them.
    """
    images = keras.Input(
        (shape.height, shape.width, shape.depth), name=keys.IMAGES
    )
    return keras.Model(images, model.call({keys.IMAGES: images}), name="export")


def export(path, network):
    """Writes a network: a `.keras` file, or a SavedModel for serving.

    What is there is never overwritten, and what is written appears under its
    name when it is complete.

    Args:
      path: path of what to make: a file if it ends in .keras, else the folder
        of a SavedModel.
      network: `keras.Model`, as `functional` makes it.

    Raises:
      UserError: if there is something at `path`, or it cannot be written.
    """
    path = pathlib.Path(path)
    _require_free(path)
    with _temporary_folder(path) as folder:
        made = folder / path.name
        try:
            if path.suffix == KERAS_SUFFIX:
                network.save(made)
            else:
                network.export(made, format="tf_saved_model", verbose=False)
            _flush_all(made)
            _require_free(path)
            made.rename(path)
            flush(path.parent)
        except (OSError, tf.errors.OpError) as error:
            raise _not_written(path, error) from error


def _require_free(path):
    if os.path.lexists(path):
        raise UserError(f"--export={path} exists and is left as it is")


@contextlib.contextmanager
def _temporary_folder(path):
    """A hidden folder beside `path`, removed in the end with what is in it."""
    try:
        folder = tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise _not_written(path, error) from None
    try:
        yield pathlib.Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _not_written(path, error):
    if isinstance(error, tf.errors.OpError):
        # Without the names of functions and temporary files.
        reason = error.message.split(" [Op:")[0].split("; ")[-1]
    else:
        reason = error.strerror or error
    return UserError(f"--export={path} cannot be written: {reason}")


def _flush_all(path):
    """Waits until a file, or a folder and all in it, is on the disk."""
    for item in (path, *path.rglob("*")):
        flush(item)
