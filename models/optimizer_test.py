"""Schedules, Adam and Muon against independent float64 computations."""

import keras
import numpy as np
import pytest
from keras import ops

from models.optimizer import OPTIMIZERS, make_schedule, orthogonalize
from testing import untrained
from testing.small_models import small_model


def rates(max_steps=None, **hparams):
    """The learning rate by step, of a model with the reference's defaults."""
    return make_schedule(small_model("baseline", **hparams), max_steps)


def test_schedules():
    # At steps 0, 1000, 2000 and a million.
    for schedule, *expected in (
        ("exponential", 0.001, 0.001 * 0.96**0.5, 0.00096, 1e-6),
        ("cosine", 0.001, 0.0005 * (1 + 0.5**0.5), 0.0005, 0.0),
        ("linear", 0.001, 0.00075, 0.0005, 0.0),
    ):
        rate = rates(schedule=schedule, max_steps=4000)
        found = [float(rate(step)) for step in (0, 1000, 2000, 1_000_000)]
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-9)


# Muon leaves matrices to Adam.
@pytest.mark.parametrize(
    ("name", "epsilon"), [("adam", 1e-8), ("adam", 1e-3), ("muon", 1e-8)]
)
def test_adam(name, epsilon):
    generator = np.random.default_rng(1)
    start = generator.normal(size=(3, 4)).astype("float32")
    # Of all sizes, zero among them.
    scales = np.array([0.0, 1e-6, 1.0, 1e3])
    gradients = scales * generator.normal(size=(5, 3, 4))
    variable = keras.Variable(start)
    adam = OPTIMIZERS[name](rates(decay_steps=2), epsilon=epsilon)
    weights = start.astype("float64")
    m = v = np.zeros_like(weights)
    for step, gradient in enumerate(gradients, start=1):
        adam.apply([ops.convert_to_tensor(gradient, "float32")], [variable])
        m = 0.9 * m + 0.1 * gradient
        v = 0.999 * v + 0.001 * gradient**2
        rate = 0.001 * 0.96 ** ((step - 1) / 2)
        rate *= np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
        weights = weights - rate * m / (v**0.5 + epsilon)
    np.testing.assert_allclose(variable.numpy(), weights, rtol=1e-6, atol=1e-7)
    # As in the reference, 1 - beta is computed in float32.
    for found, expected in zip(adam.variables[1:], (m, v), strict=True):
        np.testing.assert_allclose(found.numpy(), expected, rtol=2e-5)


def muon_by_singular_values(start, gradients, rates):
    """Muon of its authors, in float64: each singular value alone."""
    weights, momentum = start.astype("float64"), 0.0
    for gradient, rate in zip(gradients, rates, strict=True):
        momentum = 0.95 * momentum + gradient
        matrix = gradient + 0.95 * momentum
        u, values, v = np.linalg.svd(matrix, full_matrices=False)
        values = values / np.sqrt(np.sum(values**2))
        for _ in range(5):
            values = 3.4445 * values - 4.775 * values**3 + 2.0315 * values**5
        scale = rate * 0.2 * max(start.shape) ** 0.5
        weights = weights - scale * (u * values) @ v
    return weights


@pytest.mark.parametrize("shape", [(3, 3, 4, 6), (2, 5, 40), (9, 2, 3)])
def test_muon(shape):
    generator = np.random.default_rng(2)
    start = generator.normal(size=shape).astype("float32")
    gradients = 1e-3 * generator.normal(size=(4, *shape))
    variable = keras.Variable(start)
    muon = OPTIMIZERS["muon"](rates(decay_steps=2))
    for gradient in gradients:
        muon.apply([ops.convert_to_tensor(gradient, "float32")], [variable])
    both = start.reshape(-1, shape[-1]), gradients.reshape(4, -1, shape[-1])
    of_steps = 0.001 * 0.96 ** (np.arange(4) / 2)
    expected = muon_by_singular_values(*both, of_steps).reshape(shape)
    # The updates are of about 0.2 * 0.001.
    np.testing.assert_allclose(variable.numpy(), expected, rtol=0, atol=2e-6)


def test_muon_of_zero_gradients_is_finite():
    assert not np.any(orthogonalize(ops.zeros((5, 3)), 1))


def test_the_optimizer_scales_a_float16_loss_once():
    keras.config.set_dtype_policy("mixed_float16")
    model, _ = untrained.small()
    assert type(model.optimizer) is OPTIMIZERS["adam"]
    assert model.optimizer.loss_scale_factor == 1024


@pytest.mark.parametrize("names", [("muon", "adam"), ("adam", "muon")])
def test_one_optimizer_continues_from_the_state_of_the_other(names):
    generator = np.random.default_rng(4)
    variable = keras.Variable(generator.normal(size=(3, 4, 5)).astype("f4"))
    first, second = (OPTIMIZERS[name](rates()) for name in names)
    second.build([variable])
    for step in range(101):
        if step == 100:
            both = first.variables, second.variables
            for one, other in zip(*both, strict=True):
                other.assign(one)
        start = variable.numpy()
        gradient = 1e-2 * generator.normal(size=variable.shape)
        optimizer = first if step < 100 else second
        optimizer.apply([ops.cast(gradient, "float32")], [variable])
    # A usual move has a root mean square of about 0.2 times the rate.
    assert np.sqrt(np.mean((variable.numpy() - start) ** 2)) < 0.5 * 0.001
