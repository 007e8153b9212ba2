"""Models by the name that `--model` takes."""

import keras
import numpy as np

from common.errors import UserError
from input_data import features as keys
from models.baseline import BaselineModel
from models.capsule import CapsuleModel

MODELS = {"capsule": CapsuleModel, "baseline": BaselineModel}


def build_model(name, shape, num_targets, hparams, seed=0):
    """Creates a model with all its weights.

    Seeds the global generators of Python, NumPy and the backend, from which
    Keras draws the weights.

    Args:
      name: string, a key of `MODELS`.
      shape: `features.ImageShape`, the images and number of classes.
      num_targets: int, how many objects an image shows.
      hparams: `HParams`.
      seed: int, of the initial weights.

    Returns:
      A built `keras.Model`.

    Raises:
      UserError: for an unknown name, or images too small for the network.
    """
    if name not in MODELS:
        raise UserError(
            f"unknown model {name!r}; valid names: {', '.join(sorted(MODELS))}"
        )
    smallest = MODELS[name].smallest_image(hparams)
    if min(shape.height, shape.width) < smallest:
        raise UserError(
            f"images of {shape.height}x{shape.width} are too small for model "
            f"{name} with padding={hparams.padding}: the smallest size that "
            f"works is {smallest}x{smallest}"
        )
    keras.utils.set_random_seed(seed)
    model = MODELS[name](shape, num_targets, hparams, name=name)
    # One call on an empty image creates every weight.
    example = {
        keys.IMAGES: np.zeros(
            (1, shape.height, shape.width, shape.depth), "float32"
        )
    }
    model(example)
    return model
