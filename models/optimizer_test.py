"""Schedules, Adam and Muon against independent float64 computations."""

import keras
import numpy as np
import pytest
from keras import ops

from models.capsule import HParams
from models.optimizer import OPTIMIZERS, make_schedule


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        # At steps 0, 1000, 2000 and a million.
        ("exponential", [0.001, 0.001 * 0.96**0.5, 0.00096, 1e-6]),
        ("cosine", [0.001, 0.0005 * (1 + 0.5**0.5), 0.0005, 0.0]),
        ("linear", [0.001, 0.00075, 0.0005, 0.0]),
    ],
)
def test_schedules(schedule, rates):
    rate = make_schedule(HParams(schedule=schedule), max_steps=4000)
    steps = (0, 1000, 2000, 1_000_000)
    assert [float(rate(s)) for s in steps] == pytest.approx(
        rates, rel=1e-5, abs=1e-9
    )


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
    schedule = make_schedule(HParams(decay_steps=2))
    adam = OPTIMIZERS[name](schedule, epsilon=epsilon)
    weights = start.astype("float64")
    m = v = np.zeros_like(weights)
    for step, gradient in enumerate(gradients, start=1):
        adam.apply([ops.convert_to_tensor(gradient, "float32")], [variable])
        m = 0.9 * m + 0.1 * gradient
        v = 0.999 * v + 0.001 * gradient**2
        rate = 0.001 * 0.96 ** ((step - 1) / 2)
        rate *= np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
        weights = weights - rate * m / (np.sqrt(v) + epsilon)
    np.testing.assert_allclose(variable.numpy(), weights, rtol=1e-6, atol=1e-7)
    # As in the reference, 1 - beta is computed in float32.
    for found, expected in zip(adam.variables[1:], (m, v), strict=True):
        np.testing.assert_allclose(found.numpy(), expected, rtol=2e-5)


def muon_by_singular_values(start, gradients, rates):
    """Muon of its authors, in float64: each singular value alone."""
    weights, momentum = start.astype("float64"), 0.0
    for gradient, rate in zip(gradients, rates, strict=True):
        momentum = 0.95 * momentum + gradient
        u, values, v = np.linalg.svd(
            gradient + 0.95 * momentum, full_matrices=False
        )
        values = values / np.sqrt(np.sum(values**2))
        for _ in range(5):
            values = 3.4445 * values - 4.775 * values**3 + 2.0315 * values**5
        update = sum(
            value * np.outer(left, right)
            for value, left, right in zip(values, u.T, v, strict=True)
        )
        weights = weights - rate * 0.2 * max(start.shape) ** 0.5 * update
    return weights


@pytest.mark.parametrize("shape", [(3, 3, 4, 6), (2, 5, 40), (9, 2, 3)])
def test_muon(shape):
    generator = np.random.default_rng(2)
    start = generator.normal(size=shape).astype("float32")
    gradients = 1e-3 * generator.normal(size=(4, *shape))
    variable = keras.Variable(start)
    muon = OPTIMIZERS["muon"](make_schedule(HParams(decay_steps=2)))
    for gradient in gradients:
        muon.apply([ops.convert_to_tensor(gradient, "float32")], [variable])
    columns = shape[-1]
    expected = muon_by_singular_values(
        start.reshape(-1, columns),
        gradients.reshape(4, -1, columns),
        0.001 * 0.96 ** (np.arange(4) / 2),
    )
    # The updates are of about 0.2 * 0.001.
    np.testing.assert_allclose(
        variable.numpy().reshape(-1, columns), expected, rtol=0, atol=2e-6
    )


@pytest.mark.parametrize(
    ("before", "after"), [("muon", "adam"), ("adam", "muon")]
)
def test_one_optimizer_continues_from_the_state_of_the_other(before, after):
    generator = np.random.default_rng(4)
    variable = keras.Variable(generator.normal(size=(3, 4, 5)).astype("f4"))
    first, second = (
        OPTIMIZERS[name](make_schedule(HParams())) for name in (before, after)
    )
    second.build([variable])
    for step in range(101):
        optimizer = first if step < 100 else second
        start = variable.numpy()
        gradient = 1e-2 * generator.normal(size=variable.shape)
        optimizer.apply([ops.cast(gradient, "float32")], [variable])
        if step == 99:
            for mine, others in zip(
                second.variables, first.variables, strict=True
            ):
                mine.assign(others)
    # A usual move has a root mean square of about 0.2 times the rate.
    assert np.sqrt(np.mean((variable.numpy() - start) ** 2)) < 0.5 * 0.001
