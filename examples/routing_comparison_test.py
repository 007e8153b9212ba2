import numpy as np
import pytest

from examples import routing_comparison
from input_data import keys
from models.architecture import Architecture
from models.table import Model, find_model

NAMES = [
    name
    for name, found in vars(routing_comparison).items()
    if isinstance(found, Model)
]


@pytest.mark.parametrize("name", NAMES)
def test_scores_and_losses(name):
    assert len(NAMES) == 8
    name = f"examples.routing_comparison:{name}"
    row, shape = find_model(name), keys.ImageShape(8, 8, 1, 3)
    model = Architecture(name, shape, 1, row.hparams()).build()
    images = np.random.default_rng(0).random((2, 8, 8, 1), "float32")
    outputs = model({keys.IMAGES: images})
    labels = np.eye(3, dtype="float32")[:2]
    scores, steps = outputs[keys.LOGITS], np.array([0, 9])
    loss = row.loss(labels, scores, steps, model.hparams)
    assert scores.shape == (2, 3)
    assert np.all(loss > 0)
    assert np.all(np.isfinite(loss))
