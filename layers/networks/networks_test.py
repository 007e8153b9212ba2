import functools
import inspect
import json
import re
import types

import keras
import numpy as np
import pytest

import layers
from models.optimizer import make_schedule
from models.table import MODELS
from testing.gradients import to_numpy
from testing.random_networks import (
    OUTPUTS,
    build,
    other_values,
    random_images,
    random_outputs,
    randomize,
)

# TensorFlow takes long to trace, JAX to compile each operation.
EAGER = keras.backend.backend() == "tensorflow"
every_network = pytest.mark.parametrize("name", sorted(MODELS))


@every_network
def test_networks_are_trained_saved_and_loaded(name, tmp_path):
    network, images = build(name), random_images(name)
    network.compile("sgd", "categorical_crossentropy", run_eagerly=EAGER)
    network.train_on_batch(images, np.eye(3))
    found = network.predict_on_batch(images)
    assert found.shape == (3, 3)
    assert found.dtype == "float32"
    assert 0 <= found.min() <= found.max() <= 1
    network.save(tmp_path / "network.keras")
    loaded = keras.models.load_model(tmp_path / "network.keras")
    loaded.run_eagerly = EAGER
    np.testing.assert_array_equal(loaded.predict_on_batch(images), found)


@every_network
def test_networks_of_one_function_fit_into_one_model(name):
    named = build(name, name="left")
    assert all(layer.name.startswith("left_") for layer in named.layers)
    inputs = [keras.Input(named.input.shape[1:]) for _ in range(2)]
    logits = [build(name, images)["logits"] for images in inputs]
    # Keras refuses equal names of layers.
    together = keras.Model(
        [named.input, *inputs], keras.layers.average([named.output, *logits])
    )
    paths = [weight.path for weight in together.weights]
    assert len(set(paths)) == len(paths) == 3 * len(named.weights)


@every_network
@pytest.mark.parametrize("is_changed", [False, True])
def test_outputs_of_random_weights_have_not_changed(name, is_changed):
    """Also with another value of every argument."""
    more = dict(other_values(name)) if is_changed else {}
    expected = json.loads(OUTPUTS.read_text())[name][is_changed]
    np.testing.assert_allclose(
        random_outputs(name, **more), expected, atol=1e-4
    )


def traits(name, **more):
    """Yields arrays of what an argument can change, the cheap ones first."""
    keras.utils.set_random_seed(0)
    network, images = build(name, **more), random_images(name)
    yield [weight.trainable for weight in network.weights]
    yield network.get_weights()
    randomize(network)
    yield [to_numpy(network(images))]
    network(images, training=True)  # moves averages
    yield network.get_weights()


usual_traits = functools.cache(lambda name: list(traits(name)))


def differ(first, second):
    return len(first) != len(second) or any(
        np.shape(a) != np.shape(b) or not np.allclose(a, b, 1e-4, 1e-7)
        for a, b in zip(first, second, strict=True)
    )


@pytest.mark.skipif(
    not EAGER,
    reason="minutes of compilation; the effects are those of TensorFlow",
)
@pytest.mark.parametrize(
    ("name", "argument", "value"),
    [
        pytest.param(name, *pair, id="{}-{}={}".format(name, *pair))
        for name in sorted(MODELS)
        for pair in other_values(name)
    ],
)
def test_every_argument_has_an_effect(name, argument, value):
    """On shapes, initial values, outputs, or statistics of training."""
    found = traits(name, **{argument: value})
    assert any(map(differ, usual_traits(name), found))


def test_names_without_the_argument():
    first, second = (
        layers.networks.pooling((14, 14, 1), 2, dense_units=3) for _ in range(2)
    )
    assert first.name != second.name
    assert first.get_layer("dense").units == second.get_layer("dense").units
    images = keras.Input((14, 14, 1))
    outputs = [network(images) for network in (first, second)]
    assert keras.Model(images, keras.layers.average(outputs)).built


@every_network
def test_arguments_are_documented_and_have_the_defaults_of_the_model(name):
    build = getattr(layers.networks, name)
    parameters = inspect.signature(build).parameters
    documentation = inspect.getdoc(build)
    assert [p for p in parameters if p not in documentation] == []
    found = {p: parameters[p].default for p in parameters}
    expected = MODELS[name].hparams().options(build)
    for of_photographs in ("backbone_weights", "train_backbone"):
        expected.pop(of_photographs, None)
    assert {p: found[p] for p in expected} == expected


MARGINS = "margin", "deepcaps_margins", "su_margins", "summed_margins"
LOSSES = {
    "cross_entropy": "cross-entropy",
    "softmax": "`softmax_loss`",
    "spread": "`spread_loss`",
    **dict.fromkeys(MARGINS, "`margin_loss`"),
}


@every_network
def test_documented_training_is_that_of_the_model(name):
    documentation = inspect.getdoc(getattr(layers.networks, name))
    row, hparams = MODELS[name], MODELS[name].hparams()
    loss, epsilon, rate = re.search(
        r"^Loss: (.*)\. Adam: epsilon (.*), learning rate (.*)\.$",
        documentation,
        re.MULTILINE,
    ).groups()
    assert float(epsilon) == row.adam_epsilon
    schedule = make_schedule(types.SimpleNamespace(row=row, hparams=hparams))
    for step in (0, 999, 3749, 3750, 100_000, 400_000):
        found = eval(rate, {"step": step, "max": max})
        found = max(found, row.schedule.get("smallest", 1e-6))
        assert found == pytest.approx(float(schedule(step)), rel=1e-4)
    # The reference has the margin loss of the baseline's unbounded logits.
    kind = getattr(hparams, "loss_type", row.loss.__name__)
    if name in ("baseline", "homogeneous_capsule"):
        kind = "cross_entropy"  # its network ends with a softmax
    assert loss.startswith(LOSSES[kind])
    _, _, decay = loss.partition("weight decay ")
    assert float(decay or 0) == getattr(hparams, "weight_decay", 0)


def test_dtype_is_that_of_the_layers_alone():
    network = layers.networks.pooling((14, 14, 1), 2, dtype="mixed_bfloat16")
    assert network.get_layer("conv4").compute_dtype == "bfloat16"
    assert network.output.dtype == "float32"
    assert keras.config.dtype_policy().name == "float32"
