import numpy as np
import pytest
from keras import ops

from input_data import features as keys
from models.models_test import MNIST, example_batch
from models.optimizer import compile_model
from models.registry import build_model
from testing.small_models import small_hparams


def test_the_first_loss_is_that_of_equal_classes_and_all_weights_decay():
    hparams = small_hparams("self_routing", weight_decay=0.1)
    model = build_model("self_routing", MNIST, 1, hparams)
    compile_model(model, max_steps=4)
    x, y = example_batch(MNIST, 1)
    outputs = model(x)
    squares = sum(
        np.square(ops.convert_to_numpy(w)).sum()
        for w in model.trainable_weights
    )
    loss = float(model.compute_loss(x, y, outputs))
    assert loss == pytest.approx(np.log(10) + 0.05 * squares, rel=1e-5)
    capsules = ops.convert_to_numpy(outputs[keys.CAPSULES])
    np.testing.assert_allclose(capsules, np.full((4, 10, 1), 0.1), rtol=1e-5)
    before = model.get_weights()
    for _ in range(3):  # of zero routing weights the inputs have no gradient
        model.train_on_batch(x, y)
    pairs = zip(before, model.get_weights(), strict=True)
    assert all((a != b).any() for a, b in pairs)
