"""Writes a trained network for use without this project's training code."""

import pathlib

import keras

from input_data import features as keys
from old.durable import refuse_existing, user_errors, whole
from old.errors import UserError

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
      UserError: if there is something at `path`, or it cannot be written, or
        the backend has no SavedModel.
    """
    path = pathlib.Path(path)
    flag = f"--export={path}"
    refuse_existing(path)
    is_saved_model = path.suffix != KERAS_SUFFIX
    if is_saved_model and keras.backend.backend() == "torch":
        raise UserError(
            f"{flag}: torch writes no SavedModel. Name a file that ends in "
            f"{KERAS_SUFFIX}, or set KERAS_BACKEND=tensorflow"
        )
    with user_errors(flag), whole(path) as made:
        if is_saved_model:
            network.export(made, format="tf_saved_model", verbose=False)
        else:
            network.save(made)
