"""Trains a capsule network on handwritten digits and prints its test error.

  python examples/digits.py

It uses the package `layers`, which can also be installed by itself, as
capsule_layers. Replace the digits by any images [N, H, W, C] with pixels in
[0, 1]. digits.ipynb explains the same network with pictures.
"""

import pathlib
import sys

# Makes the project's packages importable from any folder.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from common.startup import load_backend

load_backend()  # loads Keras without TensorFlow's start-up messages

import keras
import numpy as np

import layers
from input_data.datasets import digits
from input_data.registry import Split


def read(split):
    """Images [N, 28, 28, 1] in [0, 1], and one-hot labels [N, 10]."""
    data = digits.read_split(split)
    return data.images / np.float32(255), np.eye(10)[data.labels]


def main(epochs=10):
    """Trains the network and prints the error on the test images."""
    keras.utils.set_random_seed(0)
    network = layers.CapsuleNetwork(
        (28, 28, 1), num_classes=10, conv_channels=64, num_prime_capsules=8
    )
    # The network adds the reconstruction loss of its decoder.
    network.compile("adam", loss=layers.margin_loss, metrics=["accuracy"])
    network.fit(*read(Split.TRAIN), batch_size=32, epochs=epochs, verbose=2)

    images, labels = read(Split.TEST)
    lengths = network.predict(images, verbose=0)["lengths"]
    wrong = np.sum(lengths.argmax(axis=-1) != labels.argmax(axis=-1))
    print(f"Test error: {wrong / len(images):.2%} ({wrong} of {len(images)})")


if __name__ == "__main__":
    main()
