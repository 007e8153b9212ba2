"""Schedules, Adam and Muon against independent float64 computations."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from input_data import keys
from models.optimizer import (
    OPTIMIZERS,
    compile_model,
    make_schedule,
    orthogonalize,
)
from testing import untrained
from testing.small_models import example_batch, small_model


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


def adam_step(weights, m, v, gradient, step, rate, epsilon=1e-8):
    """Weights and both moments after step 1, 2, ... of Adam's paper."""
    m = 0.9 * m + 0.1 * gradient
    v = 0.999 * v + 0.001 * gradient**2
    rate *= np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
    return weights - rate * m / (v**0.5 + epsilon), m, v


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
        rate = 0.001 * 0.96 ** ((step - 1) / 2)
        weights, m, v = adam_step(weights, m, v, gradient, step, rate, epsilon)
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


@pytest.mark.parametrize(
    ("before", "after"), [("muon", "adam"), ("adam", "muon")]
)
def test_one_optimizer_continues_from_the_state_of_the_other(before, after):
    generator = np.random.default_rng(4)
    variable = keras.Variable(generator.normal(size=(3, 4, 5)).astype("f4"))
    first, second = (OPTIMIZERS[name](rates()) for name in (before, after))
    second.build([variable])
    for step in range(101):
        if step == 100:
            for one, other in zip(
                first.variables, second.variables, strict=True
            ):
                other.assign(one)
        start = variable.numpy()
        gradient = 1e-2 * generator.normal(size=variable.shape)
        optimizer = first if step < 100 else second
        optimizer.apply([ops.cast(gradient, "float32")], [variable])
    # A usual move has a root mean square of about 0.2 times the rate.
    assert np.sqrt(np.mean((variable.numpy() - start) ** 2)) < 0.5 * 0.001


def float64_loss(weights, x, y, routing):
    """The loss of the capsule model by the paper's equations."""
    k1, b1, k2, b2, w3, b3, *dense = weights

    def squash(s):
        norm = tf.norm(s, axis=-1, keepdims=True)
        return s / norm * norm**2 / (1 + norm**2)

    hidden = tf.cast(x[keys.IMAGES], tf.float64)
    hidden = tf.nn.relu(tf.nn.conv2d(hidden, k1, 1, "VALID") + b1)
    s = tf.nn.conv2d(hidden, k2, 2, "VALID")
    types, batch = len(b2), len(s)
    # One routing iteration of a single input capsule.
    primary = squash(tf.reshape(s, (*s.shape[:3], types, -1)) / types + b2)
    capsules = tf.reshape(primary, (batch, len(w3), -1))
    votes = tf.einsum("bia,iak->bik", capsules, w3)
    votes = tf.reshape(votes, (batch, -1, *b3.shape))
    logits = tf.zeros(votes.shape[:3], tf.float64)
    for _ in range(routing):
        c = tf.nn.softmax(logits, axis=2)
        v = squash(tf.reduce_sum(c[..., None] * votes, axis=1) + b3)
        logits += tf.reduce_sum(votes * v[:, None], axis=-1)
    lengths = tf.norm(v, axis=-1)
    labels = tf.cast(y[keys.LABELS], tf.float64)
    present = labels * tf.nn.relu(0.9 - lengths) ** 2
    absent = 0.5 * (1 - labels) * tf.nn.relu(lengths - 0.1) ** 2
    loss = tf.reduce_mean(0.5 * (present + absent))
    hidden = tf.reshape(v * labels[..., None], (batch, -1))
    for layer, activation in enumerate((tf.nn.relu, tf.nn.relu, tf.sigmoid)):
        kernel, bias = dense[2 * layer : 2 * layer + 2]
        hidden = activation(hidden @ kernel + bias)
    squared = (hidden - y[keys.RECONS].reshape(batch, -1)) ** 2
    return loss + 0.0005 * tf.reduce_sum(squared) / batch


def test_five_steps_equal_a_float64_computation():
    shape = keys.ImageShape(19, 17, 1, 3)
    hparams = {"conv_channels": 256, "primary_atoms": 8, "class_atoms": 16}
    hparams |= {"num_prime_capsules": 2, "decay_steps": 3, "decay_rate": 0.8}
    model = small_model("capsule", shape, seed=4, **hparams)
    compile_model(model)
    x, y = example_batch(shape, 1, size=6)
    weights = initial = [
        tf.constant(ops.convert_to_numpy(w), tf.float64)
        for w in model.trainable_weights
    ]
    m = v = [tf.zeros_like(w) for w in weights]
    for step in range(5):
        with tf.GradientTape() as tape:
            tape.watch(weights)
            loss = float64_loss(weights, x, y, model.hparams.routing)
        rate = 0.001 * 0.8 ** (step / 3)
        parts = zip(weights, m, v, tape.gradient(loss, weights), strict=True)
        moved = [adam_step(*part, step + 1, rate) for part in parts]
        weights, m, v = map(list, zip(*moved, strict=True))
        ours = model.train_on_batch(x, y, return_dict=True)["loss"]
        np.testing.assert_allclose(ours, float(loss), rtol=2e-5)
        model.reset_metrics()
    for ours, start, expected in zip(
        model.trainable_weights, initial, weights, strict=True
    ):
        moved = expected.numpy() - start.numpy()
        error = ops.convert_to_numpy(ours) - expected.numpy()
        # Adam moves every weight by about the rate whatever its gradient, so
        # that rounding decides where a gradient is nearly 0.
        assert np.sqrt(np.mean(error**2)) < 1e-3 * np.sqrt(np.mean(moved**2))
        assert np.quantile(np.abs(error), 0.99) < 2e-6
