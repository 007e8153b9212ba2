import os
import pathlib

import numpy as np
import pytest
from PIL import Image, ImageDraw

import layers
from config import Config
from input_data import registry
from training.inference import Pretrained

MNIST = pathlib.Path(os.environ.get("DATA_DIR", "")) / "mnist"


def drawn_digits():
    """A 0, a 1 and a 7, white on black: float32 [3, 28, 28, 1]."""
    images = [Image.new("L", (28, 28)) for _ in range(3)]
    zero, one, seven = map(ImageDraw.Draw, images)
    zero.ellipse((8, 4, 19, 23), outline=255, width=3)
    one.line((14, 4, 14, 23), fill=255, width=3)
    seven.line((7, 6, 20, 6, 12, 23), fill=255, width=3)
    return np.stack(images)[..., None] / np.float32(255)


def test_pretrained_network_reads_drawn_digits():
    outputs = layers.pretrained("mnist")(drawn_digits())
    lengths = np.asarray(outputs["logits"])
    assert lengths.argmax(axis=1).tolist() == [0, 1, 7]
    assert lengths.max(axis=1).min() > 0.5
    assert outputs["recons"].shape == (3, 28, 28, 1)
    with pytest.raises(ValueError, match="'minst'"):
        layers.pretrained("minst")


def test_as_a_checkpoint_it_is_the_same_network():
    opened = Pretrained()
    model = opened.architecture.build()
    opened.load(model, opened.architecture)
    images = drawn_digits()
    np.testing.assert_allclose(
        model({"images": images})["logits"],
        layers.pretrained("mnist")(images)["logits"],
        rtol=1e-5,
    )


@pytest.mark.skipif(
    not ("DATA_DIR" in os.environ and MNIST.is_dir()),
    reason="no MNIST in $DATA_DIR/mnist",
)
def test_error_on_mnist():
    pipeline = registry.load(
        "mnist", registry.Split.TEST, Config(data_dir=str(MNIST))
    )
    network = layers.pretrained("mnist")
    wrong = 0
    for x, y in pipeline.evaluation_batches(500):
        logits = network.predict_on_batch(x["images"])["logits"]
        wrong += int((logits.argmax(1) != y["logits"].argmax(1)).sum())
    assert wrong <= 40
