"""Trained networks that come with the package."""

import pathlib

import keras
import numpy as np

from .base_layers import Model


def pretrained(name: str) -> Model:
    """Loads a trained network.

    "mnist" is Efficient-CapsNet with its decoder. After training on MNIST, 35
    of the 10,000 test images are predicted wrongly. The weights are rounded to
    float16; computations are in float32.

    Returns:
      `keras.Model` that takes images [B, 28, 28, 1], pixels in [0, 1], and
      returns a dict: logits [B, 10], the lengths of the capsules; capsules
      [B, 10, 16]; recons [B, 28, 28, 1], the reconstruction.

    Raises:
      ValueError: if there is no network of this name.
    """
    if name != "mnist":
        raise ValueError(f'`name` must be "mnist". Received: {name!r}')
    # Written by predict.py --export=layers/mnist.npz.
    with np.load(pathlib.Path(__file__).with_name(f"{name}.npz")) as file:
        config, *weights = file.values()
    network = keras.models.model_from_json(str(config))
    network.set_weights(weights)
    return network
