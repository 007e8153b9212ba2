"""The networks of J. Su's experiment against explicit NumPy."""

import keras
import numpy as np
import pytest
from keras import ops

from input_data import features as keys
from input_data.features import ImageShape
from models.models_test import example_batch
from models.optimizer import compile_model
from models.registry import build_model, model_class
from testing import numpy_oracle
from testing.small_models import small_hparams

NAMES = ("pooling", "shared_capsule")
SHAPE = ImageShape(14, 17, 2, 3)
RNG = np.random.default_rng(23)


def build(name, shape=SHAPE, **hparams):
    return build_model(name, shape, 1, small_hparams(name, **hparams), seed=3)


def outputs_of(model, images):
    outputs = model({keys.IMAGES: images.astype("float32")})
    return {key: ops.convert_to_numpy(value) for key, value in outputs.items()}


def convolved(images, weights):
    """The four convolutions: kernels and biases in turn."""
    hidden = images
    for number in range(4):
        if number == 2:
            height, width = (n // 2 * 2 for n in hidden.shape[1:3])
            hidden = hidden[:, :height, :width]  # an odd one is dropped
            hidden = sum(
                hidden[:, row::2, column::2] / 4
                for row in (0, 1)
                for column in (0, 1)
            )
        kernel, bias = weights[2 * number : 2 * number + 2]
        windows = np.lib.stride_tricks.sliding_window_view(
            hidden, (3, 3), axis=(1, 2)
        )
        hidden = np.einsum("bhwcyx,yxco->bhwo", windows, kernel) + bias
        hidden = np.maximum(hidden, 0)
    return hidden


def random_weights(model):
    return [RNG.normal(size=w.shape) * 0.3 for w in model.weights]


# 14x17 leaves one and two positions; 19x16 leaves three and two.
@pytest.mark.parametrize("size", [(14, 17), (19, 16)])
@pytest.mark.parametrize(
    ("hparams", "rule"),
    [
        ({"routing": 3}, {"replace": True, "direction": True}),
        ({"routing": 5, "compare": "squashed"}, {"replace": True}),
        ({"routing": 3, "compare": "squashed", "logits": "add"}, {}),
    ],
)
def test_shared_capsules_equal_numpy_at_any_size(hparams, rule, size):
    weights = random_weights(build("shared_capsule"))
    model = build("shared_capsule", ImageShape(*size, 2, 3), **hparams)
    model.set_weights(weights)
    images = RNG.uniform(size=(2, *size, 2))
    features = convolved(images, weights).reshape(2, -1, 6)
    expected = numpy_oracle.capsule(
        features,
        np.broadcast_to(weights[-1], (2, *weights[-1].shape)),
        np.zeros((2, 3, 5)),
        hparams["routing"],
        False,
        constant=0.5,
        epsilon=1e-7,
        **rule,
    )
    outputs = outputs_of(model, images)
    np.testing.assert_allclose(outputs[keys.CAPSULES], expected, atol=2e-5)
    np.testing.assert_allclose(
        outputs[keys.LOGITS], np.linalg.norm(expected, axis=-1), atol=2e-5
    )


@pytest.mark.parametrize("size", [(14, 17), (19, 16)])
def test_pooling_equals_numpy_at_any_size(size):
    weights = random_weights(build("pooling"))
    model = build("pooling", ImageShape(*size, 2, 3))
    model.set_weights(weights)
    images = RNG.uniform(size=(2, *size, 2))
    pooled = convolved(images, weights).mean(axis=(1, 2))
    hidden = np.maximum(pooled @ weights[8] + weights[9], 0)
    expected = 1 / (1 + np.exp(-(hidden @ weights[10] + weights[11])))
    np.testing.assert_allclose(
        outputs_of(model, images)[keys.LOGITS], expected, rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("name", NAMES)
def test_one_model_takes_images_of_every_size(name):
    model = build(name)
    small, large = (RNG.uniform(size=(1, n, n, 2)) for n in (14, 20))
    larger = build(name, ImageShape(20, 20, 2, 3))
    larger.set_weights(model.get_weights())
    outputs_of(model, small)
    np.testing.assert_allclose(
        outputs_of(model, large)[keys.LOGITS],
        outputs_of(larger, large)[keys.LOGITS],
        atol=1e-6,
    )


def test_weights_that_are_not_shared_are_for_one_size():
    model = build("shared_capsule", share_weights=False)
    assert model.weights[-1].shape == (2, 6, 15)
    images = RNG.uniform(size=(2, 14, 17, 2))
    weights = random_weights(model)
    model.set_weights(weights)
    expected = numpy_oracle.capsule(
        convolved(images, weights).reshape(2, -1, 6),
        np.broadcast_to(weights[-1], (2, *weights[-1].shape)),
        np.zeros((2, 3, 5)),
        3,
        False,
        replace=True,
        direction=True,
        constant=0.5,
        epsilon=1e-7,
    )
    np.testing.assert_allclose(
        outputs_of(model, images)[keys.CAPSULES], expected, atol=2e-5
    )
    for name, values, takes in (
        ("shared_capsule", {"share_weights": False}, False),
        ("shared_capsule", {}, True),
        ("pooling", {}, True),
        ("capsule", {}, False),
        ("baseline", {}, False),
    ):
        hparams = small_hparams(name, **values)
        assert model_class(name).takes_any_size(hparams) is takes


@pytest.mark.parametrize("name", NAMES)
def test_the_loss_is_the_authors(name):
    model = build(name)
    # That of shared weights is also trained as a graph, in other tests.
    model.compile(
        optimizer=keras.optimizers.SGD(0.0),
        run_eagerly=name == "shared_capsule",
    )
    x, y = example_batch(SHAPE, 2)
    loss = model.train_on_batch(x, y, return_dict=True)["loss"]
    p = outputs_of(model, x[keys.IMAGES])[keys.LOGITS]
    expected = 0.0
    for example, labels in enumerate(y[keys.LOGITS]):
        for number, label in enumerate(labels):
            length = float(p[example, number])
            if label:
                expected += max(0, 0.9 - length) ** 2
            else:
                expected += 0.25 * max(0, length - 0.1) ** 2
    np.testing.assert_allclose(loss, expected / p.size, rtol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_adam_is_that_of_keras_and_the_rate_does_not_decay(name):
    model = build(name)
    compile_model(model)
    adam = model.optimizer
    assert (adam.beta_1, adam.beta_2, adam.epsilon) == (0.9, 0.999, 1e-7)
    schedule = model_class(name).make_schedule(model.hparams)
    for step in (0, 4690, 10**6):
        np.testing.assert_allclose(float(schedule(step)), 0.001, rtol=1e-6)
    ending = model_class(name).make_schedule(
        small_hparams(name, schedule="linear"), 100
    )
    np.testing.assert_allclose(float(ending(50)), 0.0005, rtol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_initial_weights_are_those_of_keras(name):
    for weight in build_model(
        name, SHAPE, 1, model_class(name).HParams()
    ).weights:
        values = ops.convert_to_numpy(weight)
        if values.ndim == 1:
            np.testing.assert_array_equal(values, 0.0)
            continue
        *field, before, after = values.shape
        limit = np.sqrt(6 / (np.prod(field) * (before + after)))
        assert 0.9 * limit < np.abs(values).max() <= limit


def test_the_routing_of_images_is_by_position():
    model = build("shared_capsule", ImageShape(14, 18, 2, 3))
    images = RNG.uniform(size=(2, 14, 18, 2)).astype("float32")
    routing = model.routing_of(images)
    couplings = ops.convert_to_numpy(routing.couplings)
    assert couplings.shape == (3, 2, 1, 3, 1, 3)
    assert not routing.leaky
    np.testing.assert_allclose(couplings.sum(axis=-1), 1.0, atol=1e-5)
    np.testing.assert_allclose(couplings[0], 1 / 3, atol=1e-6)
    # The column of a position is that of its features.
    features = ops.convert_to_numpy(model.convolve(images)["conv4"])
    one = ops.convert_to_numpy(
        model.capsule.couplings(features.reshape(2, 3, 6))
    )
    np.testing.assert_allclose(couplings[-1, :, 0, :, 0], one[-1], atol=1e-6)
