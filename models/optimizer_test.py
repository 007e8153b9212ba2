"""Schedules, Adam and Muon against independent float64 computations."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from input_data import features as keys
from input_data.features import ImageShape
from models.capsule import HParams
from models.models_test import example_batch
from models.optimizer import compile_model, make_optimizer, make_schedule
from models.registry import build_model


@pytest.mark.parametrize(
    ("step", "rate"),
    [
        (0, 0.001),
        (1000, 0.001 * 0.96**0.5),
        (2000, 0.00096),
        (1_000_000, 1e-6),
    ],
)
def test_learning_rate(step, rate):
    schedule = make_schedule(HParams())
    np.testing.assert_allclose(float(schedule(step)), rate, rtol=1e-5)


def test_schedule_serializes():
    schedule = make_schedule(HParams(decay_steps=7))
    copy = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(schedule)
    )
    assert copy.get_config() == schedule.get_config()
    assert float(copy(5)) == float(schedule(5))


@pytest.mark.parametrize(
    ("schedule", "half"), [("cosine", 0.001 / 2), ("linear", 0.001 / 2)]
)
def test_schedules_that_end_reach_zero_at_the_last_step(schedule, half):
    rate = make_schedule(HParams(schedule=schedule), max_steps=50)
    assert [float(rate(step)) for step in (0, 25, 50)] == pytest.approx(
        [0.001, half, 0.0], abs=1e-9
    )
    quarter = {"cosine": (1 + 0.5**0.5) / 2, "linear": 0.75}[schedule]
    assert float(rate(12.5)) == pytest.approx(0.001 * quarter, rel=1e-5)


@pytest.mark.parametrize("epsilon", [1e-8, 1e-3])
def test_adam(epsilon):
    generator = np.random.default_rng(1)
    start = generator.normal(size=(3, 4)).astype("float32")
    # Of all sizes, zero among them.
    scales = np.array([0.0, 1e-6, 1.0, 1e3])
    gradients = scales * generator.normal(size=(5, 3, 4))
    variable = keras.Variable(start)
    adam = make_optimizer(
        "adam", make_schedule(HParams(decay_steps=2)), epsilon
    )
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
    muon = make_optimizer("muon", make_schedule(HParams(decay_steps=2)))
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


def test_muon_leaves_dense_kernels_and_biases_to_adam():
    weights = {}
    for name in ("adam", "muon"):
        generator = np.random.default_rng(3)
        made = make_optimizer(name, make_schedule(HParams()))
        variables = [
            keras.Variable(generator.normal(size=size).astype("float32"))
            for size in ((4, 5), (5,), (2, 4, 5))
        ]
        for _ in range(2):
            made.apply(
                [
                    ops.convert_to_tensor(
                        generator.normal(size=v.shape), "float32"
                    )
                    for v in variables
                ],
                variables,
            )
        weights[name] = [v.numpy() for v in variables]
    dense, bias, kernel = zip(weights["adam"], weights["muon"], strict=True)
    np.testing.assert_array_equal(*dense)
    np.testing.assert_array_equal(*bias)
    assert np.max(np.abs(kernel[0] - kernel[1])) > 1e-5


@pytest.mark.parametrize(
    ("before", "after"), [("muon", "adam"), ("adam", "muon")]
)
def test_one_optimizer_goes_on_from_the_state_of_the_other(before, after):
    generator = np.random.default_rng(4)
    variable = keras.Variable(generator.normal(size=(3, 4, 5)).astype("f4"))
    schedule = make_schedule(HParams())
    optimizers = [make_optimizer(name, schedule) for name in (before, after)]
    for made in optimizers:
        made.build([variable])

    def move(made):
        gradient = 1e-2 * generator.normal(size=variable.shape)
        start = variable.numpy()
        made.apply([ops.convert_to_tensor(gradient, "float32")], [variable])
        return float(np.sqrt(np.mean((variable.numpy() - start) ** 2)))

    for _ in range(100):
        move(optimizers[0])
    for there, here in zip(*(o.variables for o in optimizers), strict=True):
        here.assign(there)
    # Its own moves are of about 0.2 times the rate.
    assert move(optimizers[1]) < 0.5 * 0.001


def float64_loss(weights, x, y, routing):
    """The capsule model's loss as the reference writes it: channels first,
    votes by tile, multiply and reduce, logits by norm."""
    (k1, b1, k2, b2, w3, b3, *dense) = weights
    images = tf.transpose(tf.cast(x[keys.IMAGES], tf.float64), (0, 3, 1, 2))

    def convolve(maps, kernel, strides):
        # A convolution on the CPU wants channels last.
        out = tf.nn.conv2d(
            tf.transpose(maps, (0, 2, 3, 1)), kernel, strides, "VALID"
        )
        return tf.transpose(out, (0, 3, 1, 2))

    def squash(s, axis):
        norm = tf.norm(s, axis=axis, keepdims=True)
        return s / norm * norm**2 / (1 + norm**2)

    hidden = tf.nn.relu(convolve(images, k1, 1) + b1[:, None, None])
    types = b2.shape[0]
    s = convolve(hidden, k2, 2)
    batch, _, height, width = s.shape
    s = tf.reshape(s, (batch, types, 8, height, width)) / types
    primary = squash(s + b2[:, :, None, None], axis=2)
    # Ours orders the input capsules by row, column, type.
    primary = tf.transpose(primary, (0, 3, 4, 1, 2))
    capsules = tf.reshape(primary, (batch, -1, 8))

    classes, atoms = b3.shape
    tiled = tf.tile(capsules[..., None], (1, 1, 1, classes * atoms))
    votes = tf.reduce_sum(tiled * w3, axis=2)
    votes = tf.reshape(votes, (batch, -1, classes, atoms))
    logits = tf.zeros(votes.shape[:3], tf.float64)
    for _ in range(routing):
        c = tf.nn.softmax(logits, axis=2)
        v = squash(tf.reduce_sum(c[..., None] * votes, axis=1) + b3, axis=-1)
        logits += tf.reduce_sum(votes * v[:, None], axis=-1)
    lengths = tf.norm(v, axis=-1)

    labels = tf.cast(y[keys.LOGITS], tf.float64)
    present = tf.cast(lengths < 0.9, tf.float64) * (lengths - 0.9) ** 2
    absent = tf.cast(lengths > 0.1, tf.float64) * (lengths - 0.1) ** 2
    loss = tf.reduce_mean(
        0.5 * labels * present + 0.5 * 0.5 * (1 - labels) * absent
    )
    hidden = tf.reshape(v * labels[..., None], (batch, -1))
    for layer, activation in enumerate((tf.nn.relu, tf.nn.relu, tf.sigmoid)):
        kernel, bias = dense[2 * layer : 2 * layer + 2]
        hidden = activation(hidden @ kernel + bias)
    target = tf.cast(tf.reshape(y[keys.RECONS], (batch, -1)), tf.float64)
    squared = tf.reduce_sum((hidden - target) ** 2, axis=-1)
    return loss + 0.0005 * tf.reduce_mean(squared)


def test_five_steps_equal_a_float64_computation():
    shape = ImageShape(19, 17, 1, 3)
    hparams = HParams(
        num_prime_capsules=2,
        routing=3,
        learning_rate=0.002,
        decay_steps=3,
        decay_rate=0.8,
    )
    model = build_model("capsule", shape, 1, hparams, seed=4)
    compile_model(model)
    x, y = example_batch(shape, 1, size=6)
    weights = [
        tf.constant(ops.convert_to_numpy(w), tf.float64)
        for w in model.trainable_weights
    ]
    assert [w.shape.rank for w in weights] == [4, 1, 4, 2, 3, 2] + [2, 1] * 3
    initial = weights
    m = [tf.zeros_like(w) for w in weights]
    v = [tf.zeros_like(w) for w in weights]
    for step in range(5):
        with tf.GradientTape() as tape:
            tape.watch(weights)
            loss = float64_loss(weights, x, y, hparams.routing)
        gradients = tape.gradient(loss, weights)
        rate = max(1e-6, 0.002 * 0.8 ** (step / 3))
        t = step + 1
        m = [0.9 * a + 0.1 * g for a, g in zip(m, gradients, strict=True)]
        v = [
            0.999 * a + 0.001 * g**2 for a, g in zip(v, gradients, strict=True)
        ]
        corrected = rate * np.sqrt(1 - 0.999**t) / (1 - 0.9**t)
        weights = [
            w - corrected * a / (tf.sqrt(b) + 1e-8)
            for w, a, b in zip(weights, m, v, strict=True)
        ]
        ours = model.train_on_batch(x, y, return_dict=True)["loss"]
        np.testing.assert_allclose(ours, float(loss), rtol=2e-5)
        model.reset_metrics()
    for ours, start, expected in zip(
        model.trainable_weights, initial, weights, strict=True
    ):
        moved = expected.numpy() - start.numpy()
        error = ops.convert_to_numpy(ours) - expected.numpy()
        # Adam moves every weight by about the rate whatever its gradient, so
        # that rounding decides where a gradient is nearly 0: all but a few
        # must agree closely, and the few be no worse than a step apart.
        assert np.sqrt(np.mean(error**2)) < 1e-3 * np.sqrt(np.mean(moved**2))
        assert np.quantile(np.abs(error), 0.99) < 2e-6
