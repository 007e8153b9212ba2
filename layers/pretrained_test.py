import os
import pathlib

import numpy as np
import pytest

import layers
from input_data.registry import Split
from testing import splits

MNIST = pathlib.Path(os.environ.get("DATA_DIR", "missing"), "mnist")


@pytest.fixture(scope="module")
def network():
    return layers.pretrained("mnist")


def test_drawn_digits(network):
    y, x = np.mgrid[-13.5:14, -13.5:14]
    zero = abs(np.hypot(x / 6, y / 9) - 1) < 0.2
    one = (abs(x + y / 5) < 1.5) & (abs(y) < 9)
    strokes = (y < -6) | (abs(x + y / 2) < 1.5)
    seven = strokes & (abs(x) < 6) & (abs(y) < 9)
    images = np.stack([zero, one, seven])[..., None].astype("float32")
    outputs = network.predict_on_batch(images)
    assert outputs["logits"].argmax(axis=-1).tolist() == [0, 1, 7]
    assert outputs["logits"].max(axis=-1).min() > 0.5
    assert np.mean((outputs["recons"] - images) ** 2) < np.var(images)
    with pytest.raises(ValueError, match="cifar10"):
        layers.pretrained("cifar10")


@pytest.mark.skipif(not MNIST.exists(), reason="needs $DATA_DIR/mnist")
def test_errors_on_mnist(network):
    test = splits.load("mnist", Split.TEST, MNIST)
    ((x, y),) = test.evaluation_batches(10_000)
    logits = network.predict(x["images"], 100, verbose=0)["logits"]
    wrong = logits.argmax(axis=-1) != y["labels"].argmax(axis=-1)
    assert len(wrong) == 10_000
    assert wrong.sum() <= 40
