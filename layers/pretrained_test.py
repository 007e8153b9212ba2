import os
import pathlib

import numpy as np
import pytest
from PIL import Image, ImageDraw

import layers
from input_data.registry import Split
from testing import splits

MNIST = pathlib.Path(os.environ.get("DATA_DIR", "missing"), "mnist")
# At most 0.40 % of the 10,000 test images.
MOST_ERRORS = 40


def drawn(*lines):
    """An image [28, 28, 1] of white lines through points of a 20x20 square."""
    image = Image.new("L", (280, 280))
    for line in lines:
        points = [(40 + 10 * x, 40 + 10 * y) for x, y in line]
        ImageDraw.Draw(image).line(points, 255, 25, joint="curve")
    return np.asarray(image.resize((28, 28)), "float32")[..., None] / 255


@pytest.fixture(scope="module")
def network():
    return layers.pretrained("mnist")


def test_drawn_digits(network):
    turns = np.linspace(0, 2 * np.pi, 20)
    circle = np.stack([10 + 6 * np.cos(turns), 10 + 9 * np.sin(turns)], 1)
    digits = {0: [circle], 1: [[(11, 1), (9, 19)]]}
    digits[7] = [[(4, 2), (16, 2), (9, 19)]]
    images = np.stack([drawn(*lines) for lines in digits.values()])
    outputs = network.predict_on_batch(images)
    assert outputs["logits"].argmax(axis=-1).tolist() == list(digits)
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
    assert wrong.sum() <= MOST_ERRORS
