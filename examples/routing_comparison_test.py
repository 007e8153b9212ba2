import numpy as np
import pytest
from models.registry import build_model

from examples import routing_comparison
from input_data import keys
from models.hparams import BaseHParams

NAMES = [
    name
    for name, found in vars(routing_comparison).items()
    if name[0].isupper() and hasattr(found, "route")
]


@pytest.mark.parametrize("name", NAMES)
def test_logits_and_losses(name):
    assert len(NAMES) == 8
    name = f"examples.routing_comparison:{name}"
    model = build_model(name, keys.ImageShape(8, 8, 1, 3), 1, BaseHParams())
    images = np.random.default_rng(0).random((2, 8, 8, 1), "float32")
    outputs = model({keys.IMAGES: images})
    labels = np.eye(3, dtype="float32")[:2]
    loss = model.classification_loss(labels, outputs, step=np.array([0, 9]))
    assert outputs[keys.LOGITS].shape == (2, 3)
    assert np.all(loss > 0)
    assert np.all(np.isfinite(loss))
