import inspect

import keras
import numpy as np
import pytest

import layers
from models.registry import MODELS, model_class
from testing.small_models import shallow_backbone, small_hparams, small_shape


@pytest.mark.parametrize("name", sorted(MODELS))
def test_networks_are_trained_saved_and_loaded(name, tmp_path, monkeypatch):
    monkeypatch.setattr("keras.applications.MobileNetV3Small", shallow_backbone)
    shape, build = small_shape(name), getattr(layers.networks, name)
    size = (shape.height, shape.width, shape.depth)
    options = small_hparams(name).options()
    network = build(size, num_classes=3, **options)
    images = np.random.default_rng(1).random((4, *size), "float32")
    network.compile("sgd", "categorical_crossentropy")
    network.fit(images, np.eye(3)[[0, 1, 2, 0]], verbose=0)
    found = network.predict(images, verbose=0)
    assert found.shape == (4, 3)
    assert found.dtype == "float32"
    assert 0 <= found.min() <= found.max() <= 1
    network.save(tmp_path / "network.keras")
    loaded = keras.models.load_model(tmp_path / "network.keras")
    np.testing.assert_array_equal(loaded.predict(images, verbose=0), found)
    # A function also gives the tensors of a larger graph.
    inputs = keras.Input(size)
    tensors = build(inputs, 3, **options)
    assert tensors["logits"].shape == (None, 3)


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


def test_dtype_is_that_of_the_layers_alone():
    network = layers.networks.pooling((14, 14, 1), 2, dtype="mixed_bfloat16")
    assert network.get_layer("conv4").compute_dtype == "bfloat16"
    assert network.output.dtype == "float32"
    assert keras.config.dtype_policy().name == "float32"
