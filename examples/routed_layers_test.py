"""The networks with two routed layers of docs/architecture.md learn digits."""

import keras
import numpy as np
import pytest

from config import Config
from input_data import features as keys
from input_data.registry import load
from readme_test import ROOT, blocks

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def networks():
    found = {}
    for block in blocks("python", ROOT / "docs" / "architecture.md"):
        if "Classifier" not in block and "RoutingRule" not in block:
            exec(block, found)
    return found


@pytest.fixture(scope="module")
def digits():
    """400 images and labels, and 100 others."""
    pipeline = load(Config(dataset="digits"), True)
    ((x, y),) = pipeline.evaluation_batches(500, stop=500)
    return [(v[:400], v[400:]) for v in (x[keys.IMAGES], y[keys.LOGITS])]


def accuracy_of(network, layers, images, labels, rate, epochs):
    """Trains on the first images; returns the accuracy on the others."""
    optimizer = keras.optimizers.Adam(rate)
    network.compile(optimizer, layers.margin_loss, metrics=[layers.correct])
    network.fit(images[0], labels[0], 20, epochs, verbose=0)
    return network.evaluate(images[1], labels[1], verbose=0)[1]


def test_two_routed_layers_learn_digits(networks, digits):
    keras.utils.set_random_seed(0)
    network, layers = networks["two_routed"], networks["layers"]
    assert accuracy_of(network, layers, *digits, 0.005, 7) > 0.75


def test_strokes_are_segmented(networks, digits):
    images, _ = digits
    pixels = [np.eye(2)[(part[..., 0] > 0.4).astype(int)] for part in images]
    assert pixels[1].mean(axis=(0, 1, 2)).max() < 0.85
    network, layers = networks["segmentation"], networks["layers"]
    assert accuracy_of(network, layers, images, pixels, 0.01, 3) > 0.95
