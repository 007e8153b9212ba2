"""Trained networks that come with the package."""

import pathlib

import keras
import numpy as np
from keras import ops

from .base_layers import Model
from .reconstruction import Reconstruction
from .routing import lengths
from .self_attention import DepthwiseCapsule, SelfAttentionCapsule


def pretrained(name: str) -> Model:
    """Loads a trained network.

    "mnist" is Efficient-CapsNet with its decoder, trained on MNIST. It predicts
    35 of the 10,000 test images wrongly. The weights are rounded to float16;
    computations are in float32.

    Returns:
      `keras.Model` that takes images [B, 28, 28, 1], pixels in [0, 1], and
      returns a dict: logits [B, 10], the lengths of the capsules; capsules
      [B, 10, 16]; recons [B, 28, 28, 1], the reconstruction. The keys
      are those of exports by predict.py, not those of `CapsuleNetwork`.

    Raises:
      ValueError: if there is no network of this name.
    """
    if name != "mnist":
        raise ValueError(f'`name` must be "mnist". Received: {name!r}')
    network = _efficient_capsnet()
    # Written by predict.py --export=layers/mnist.npz.
    with np.load(pathlib.Path(__file__).with_name(f"{name}.npz")) as file:
        network.set_weights(list(file.values()))  # in the order of the layers
    return network


def _efficient_capsnet():
    """Figure 2 and section 3 of Mazzia, Salvetti, Chiaberge 2021."""
    images = x = keras.Input((28, 28, 1), name="images", dtype="float32")
    filters, kernels, strides = (32, 64, 64, 128), (5, 3, 3, 3), (1, 1, 1, 2)
    options = {"dtype": "float32"}
    for i in range(4):
        x = keras.layers.Conv2D(
            *(filters[i], kernels[i], strides[i]),
            activation="relu",
            data_format="channels_last",
            name=f"conv{i + 1}",
            **options,
        )(x)
        norm = keras.layers.BatchNormalization(name=f"norm{i + 1}", **options)
        x = norm(x, training=False)
    x = DepthwiseCapsule(8, 9, name="primary_capsule", **options)(x)
    x = SelfAttentionCapsule(10, 16, name="class_capsule", **options)(x)
    outputs = {"logits": lengths(x), "capsules": x}
    decoder = Reconstruction(28, 28, 1, True, name="recons", **options)
    longest = ops.argsort(-outputs["logits"], axis=-1)[:, 0]
    outputs["recons"] = decoder(x, longest)
    return keras.Model(images, outputs, name="export")
