"""Trained networks that come with the package."""

import pathlib

import keras
import numpy as np
from keras import ops

from .networks.efficient_capsule import efficient_capsule
from .reconstruction import Reconstruction


def pretrained(name: str) -> keras.Model:
    """Loads a trained network; raises ValueError if none has this name.

    "mnist" is Efficient-CapsNet with its decoder, trained on MNIST. It predicts
    35 of the 10,000 test images wrongly. The weights are rounded to float16;
    computations are in float32.

    Returns:
      `keras.Model` that takes images [B, 28, 28, 1], pixels in [0, 1], and
      returns a dict: logits [B, 10], the lengths of the capsules; capsules
      [B, 10, 16]; recons [B, 28, 28, 1], the reconstruction.
    """
    if name != "mnist":
        raise ValueError(f'`name` must be "mnist". Received: {name!r}')
    options = {"dtype": "float32"}
    images = keras.Input((28, 28, 1), name="images", **options)
    tensors = efficient_capsule(images, 10, name="", **options)
    outputs = {key: tensors[key] for key in ("logits", "capsules")}
    decoder = Reconstruction(28, 28, 1, True, name="recons", **options)
    longest = ops.argsort(-outputs["logits"], axis=-1)[:, 0]
    outputs["recons"] = decoder(outputs["capsules"], longest)
    network = keras.Model(images, outputs, name="export")
    # Written by predict.py --export=layers/mnist.npz.
    with np.load(pathlib.Path(__file__).with_name(f"{name}.npz")) as file:
        network.set_weights(list(file.values()))  # in the order of the layers
    return network
