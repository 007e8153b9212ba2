import inspect
import re

import keras
import numpy as np
import pytest
from models.registry import MODELS, model_class

import layers
from testing.small_models import shallow_backbone, small_hparams, small_shape


@pytest.fixture
def build(request, monkeypatch):
    """Builds a small network from images or the shape in `build.size`."""
    monkeypatch.setattr("keras.applications.MobileNetV3Small", shallow_backbone)
    name = request.param
    options = small_hparams(name).options()

    def build(images, **more):
        return getattr(layers.networks, name)(images, 3, **options, **more)

    shape = small_shape(name)
    build.size = (shape.height, shape.width, shape.depth)
    return build


every_network = pytest.mark.parametrize("build", sorted(MODELS), indirect=True)


@every_network
def test_networks_are_trained_saved_and_loaded(build, tmp_path):
    network = build(build.size)
    images = np.random.default_rng(1).random((4, *build.size), "float32")
    network.compile("sgd", "categorical_crossentropy", run_eagerly=True)
    network.train_on_batch(images, np.eye(3)[[0, 1, 2, 0]])
    found = network.predict_on_batch(images)
    assert found.shape == (4, 3)
    assert found.dtype == "float32"
    assert 0 <= found.min() <= found.max() <= 1
    network.save(tmp_path / "network.keras")
    loaded = keras.models.load_model(tmp_path / "network.keras")
    loaded.run_eagerly = True
    np.testing.assert_array_equal(loaded.predict_on_batch(images), found)


@every_network
def test_networks_of_one_function_fit_into_one_model(build):
    named = build(build.size, name="left")
    assert all(layer.name.startswith("left_") for layer in named.layers)
    inputs = keras.Input(build.size), keras.Input(build.size)
    logits = [build(images)["logits"] for images in inputs]
    # Keras refuses equal names of layers.
    together = keras.Model(
        [named.input, *inputs], keras.layers.average([named.output, *logits])
    )
    paths = [weight.path for weight in together.weights]
    assert len(set(paths)) == len(paths) == 3 * len(named.weights)


def test_names_without_the_argument():
    first, second = (
        layers.networks.pooling((14, 14, 1), 2, dense_units=3) for _ in range(2)
    )
    assert first.name != second.name
    assert first.get_layer("dense").units == second.get_layer("dense").units
    images = keras.Input((14, 14, 1))
    outputs = [network(images) for network in (first, second)]
    assert keras.Model(images, keras.layers.average(outputs)).built


@pytest.mark.parametrize("name", sorted(MODELS))
def test_arguments_are_documented_and_have_the_defaults_of_the_model(name):
    build = getattr(layers.networks, name)
    parameters = inspect.signature(build).parameters
    documentation = inspect.getdoc(build)
    assert [p for p in parameters if p not in documentation] == []
    found = {p: parameters[p].default for p in parameters}
    expected = model_class(name).HParams().options()
    expected.pop("train_backbone", None)  # random weights must be trained
    assert {p: found[p] for p in expected} == expected


LOSSES = {
    None: "cross-entropy",
    "margin": "`margin_loss`",
    "softmax": "cross-entropy|`softmax_loss`",
    "spread": "`spread_loss`",
}


@pytest.mark.parametrize("name", sorted(MODELS))
def test_documented_training_is_that_of_the_model(name):
    documentation = inspect.getdoc(getattr(layers.networks, name))
    model, hparams = model_class(name), model_class(name).HParams()
    loss, epsilon, rate = re.search(
        r"^Loss: (.*)\. Adam: epsilon (.*), learning rate (.*)\.$",
        documentation,
        re.MULTILINE,
    ).groups()
    assert float(epsilon) == model.adam_epsilon
    schedule = model.make_schedule(hparams)
    for step in (0, 1000, 5000, 100_000):
        found = max(eval(rate, {"step": step, "max": max}), 1e-6)
        assert found == pytest.approx(float(schedule(step)), rel=1e-4)
    # The reference has the margin loss of the baseline's unbounded logits.
    kind = "softmax" if name == "baseline" else hparams.loss_type
    assert re.match(LOSSES[kind], loss)
    _, _, decay = loss.partition("weight decay ")
    assert float(decay or 0) == getattr(hparams, "weight_decay", 0)


def test_dtype_is_that_of_the_layers_alone():
    network = layers.networks.pooling((14, 14, 1), 2, dtype="mixed_bfloat16")
    assert network.get_layer("conv4").compute_dtype == "bfloat16"
    assert network.output.dtype == "float32"
    assert keras.config.dtype_policy().name == "float32"
