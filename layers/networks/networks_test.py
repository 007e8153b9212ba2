"""Networks of small sizes with weights from NumPy.

`python -m layers.networks.networks_test` writes their outputs to OUTPUTS.
"""

import functools
import inspect
import json
import pathlib
import re
import types
import typing

import keras
import numpy as np
import pytest

import layers
from models.optimizer import make_schedule
from models.table import MODELS
from testing import small_models
from testing.gradients import to_numpy

OUTPUTS = pathlib.Path(small_models.__file__).with_name("network_outputs.json")
# photo_capsule_test.py tests the last two.
SKIPPED = "images", "num_classes", "backbone", "backbone_weights"
LARGE = "branches", "kernel_size"  # more would not fit


def options(name):
    """The arguments of a small network on which others have an effect."""
    hparams = small_models.small_hparams(name)
    found = hparams.options(MODELS[name].network)
    found.pop("backbone_weights", None)
    found |= {"num_routing": 3} if "num_routing" in found else {}
    # Class capsules see several positions.
    return found | ({"padding": "SAME"} if name == "matrix_capsule" else {})


def other_values(name):
    """Yields (argument, value): every choice, or one other number."""
    found = inspect.signature(MODELS[name].network).parameters
    for argument in [name for name in found if name not in SKIPPED]:
        value = options(name).get(argument, found[argument].default)
        others = typing.get_args(found[argument].annotation)
        if argument == "rule":
            others = [layers.RoutingRule(squash_constant=0.5)]
        elif isinstance(value, bool):
            others = [not value]
        elif isinstance(value, int):
            others = [value + (1 if argument not in LARGE else -1)]
        elif isinstance(value, float):
            others = [0.5 * value + 0.05]
        yield from ((argument, other) for other in others if other != value)


def size(name):
    """(H, W, C) of the images."""
    shape = small_models.small_shape(name)
    return shape.height, shape.width, shape.depth


def build(network, images=None, /, **more):
    """A network from images or a shape; `more` are further arguments."""
    images = size(network) if images is None else images
    with pytest.MonkeyPatch.context() as patch:
        backbone = small_models.shallow_backbone
        patch.setattr("keras.applications.MobileNetV3Small", backbone)
        return MODELS[network].network(images, 3, **options(network) | more)


def random_images(name):
    return np.random.default_rng(1).random((3, *size(name)), "float32")


def randomize(network):
    """Gives weights that keep outputs from 0 and 1; variances are positive."""
    rng = np.random.default_rng(0)
    for weight in network.weights:
        if weight.name in ("gamma", "moving_variance"):
            values = rng.uniform(0.5, 1.5, weight.shape)
        elif len(weight.shape) > 1:
            scale = 2 / np.sqrt(np.prod(weight.shape[:-1]))
            values = scale * rng.normal(size=weight.shape)
        else:
            values = 0.3 * rng.normal(size=weight.shape)
        weight.assign(values)


def random_outputs(name, is_changed):
    """Outputs of random weights, before and after moving statistics.

    If `is_changed`, every argument has another value.
    """
    network = build(name, **(dict(other_values(name)) if is_changed else {}))
    randomize(network)
    images = random_images(name)
    before = network(images)
    network(images, training=True)
    return np.stack(to_numpy([before, network(images)]))


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
    expected = json.loads(OUTPUTS.read_text())[name][is_changed]
    found = random_outputs(name, is_changed)
    np.testing.assert_allclose(found, expected, atol=1e-4)


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
    first, second = (layers.networks.pooling((14, 14, 1), 2) for _ in range(2))
    assert first.name != second.name
    assert first.get_layer("dense").units == second.get_layer("dense").units


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


if __name__ == "__main__":
    rows = []
    for name in sorted(MODELS):
        both = [random_outputs(name, changed) for changed in (False, True)]
        rounded = np.array(both, "float64").round(5).tolist()
        rows.append(f'"{name}": {json.dumps(rounded)}')
    OUTPUTS.write_text("{\n" + ",\n".join(rows) + "\n}\n")
