"""The networks with two routed layers of docs/architecture.md learn digits."""

import keras
import numpy as np
import pytest

import layers
from config import Config
from input_data import keys
from input_data.registry import load
from readme_test import ROOT, blocks


@pytest.mark.slow
def test_the_networks_learn():
    names = {}
    for block in blocks("python", ROOT / "docs" / "architecture.md"):
        if "Classifier" not in block and "RoutingRule" not in block:
            exec(block, names)
    pipeline = load(Config(dataset="digits"), True)
    ((x, y),) = pipeline.evaluation_batches(500, stop=500)
    images = x[keys.IMAGES]
    strokes = np.eye(2)[(images[..., 0] > 0.4).astype(int)]
    assert strokes[400:].mean(axis=(0, 1, 2)).max() < 0.85
    for name, labels, rate, epochs, least in (
        ("two_routed", y[keys.LABELS], 0.005, 7, 0.75),
        ("segmentation", strokes, 0.01, 3, 0.95),
    ):
        keras.utils.set_random_seed(0)
        network, loss = names[name], layers.margin_loss
        optimizer = keras.optimizers.Adam(rate)
        network.compile(optimizer, loss, metrics=[layers.correct])
        network.fit(images[:400], labels[:400], 20, epochs, verbose=0)
        found = network.evaluate(images[400:], labels[400:], verbose=0)
        assert found[1] > least
