import dataclasses
import math
import signal
from unittest import mock

import h5py
import keras
import numpy as np
import pytest
from keras import ops
from keras.src.applications import mobilenet_v3
from keras.src.legacy.saving import legacy_h5_format

import experiment
import layers
from common.errors import Interrupted, UserError
from config import Config
from input_data.keys import ImageShape
from models.optimizer import compile_model
from models.photo_model import PhotoModel
from testing import untrained
from testing.saved_arrays import assert_same_state
from testing.small_models import shallow_backbone, small_model
from testing.tiny_files import random_images
from training.checkpoint import checkpoint_path
from training.evaluate import Evaluator
from training.formats import open_checkpoint

NAME = "photo_capsule"
SHAPE = ImageShape(32, 36, 3, 3)
IMAGES = np.random.default_rng(0).random((2, 32, 36, 3)).astype("float32")


def other_backbone(make=shallow_backbone):
    """No weight, also no moving statistic, has its initial value."""
    network = make(include_top=False, weights=None, input_shape=(64, 64, 3))
    rng = np.random.default_rng(7)
    shapes = [w.shape for w in network.weights]
    network.set_weights([rng.uniform(0.1, 0.2, shape) for shape in shapes])
    return network


def write_as_downloaded(path, network):
    """The layout of the files that keras.applications downloads."""
    with h5py.File(path, "w") as file:
        legacy_h5_format.save_weights_to_hdf5_group(file, network)


def assert_loads(source, network):
    options = {"backbone_weights": source, "train_backbone": False}
    model = small_model(NAME, **options)
    model.load_initial_weights()
    found, expected = model.backbone.get_weights(), network.get_weights()
    np.testing.assert_equal(found, expected)
    return model


@pytest.mark.usefixtures("shallow")
def test_weights_of_files(tmp_path):
    network = other_backbone()
    for name in ("a.weights.h5", "b.keras"):
        save = network.save_weights if "weights" in name else network.save
        save(tmp_path / name)
        assert_loads(str(tmp_path / name), network)
    write_as_downloaded(tmp_path / "c.h5", network)
    assert_loads(str(tmp_path / "c.h5"), network)
    (tmp_path / "d.h5").write_text("no weights")
    for name in ("d.h5", "missing.keras"):
        with pytest.raises(UserError, match=name):
            assert_loads(str(tmp_path / name), network)


def test_weights_are_missed_before_the_images_are_read(tmp_path):
    data = {"dataset": "images", "data_dir": str(tmp_path / "not_there")}
    data |= {"hparams_override": "backbone_weights=gone.keras", "model": NAME}
    with pytest.raises(UserError, match=r"gone\.keras"):
        experiment.run(Config(summary_dir=str(tmp_path), **data))


def test_imagenet_weights_are_downloaded(tmp_path, monkeypatch):
    network = other_backbone(keras.applications.MobileNetV3Small)
    write_as_downloaded(tmp_path / "c.h5", network)
    answers = [tmp_path / "c.h5", Exception("URL fetch failure on x.org")]
    get_file = mock.Mock(side_effect=answers)
    monkeypatch.setattr(mobilenet_v3.file_utils, "get_file", get_file)
    model = assert_loads("imagenet", network)
    assert "no_top" in get_file.call_args.args[0]
    with pytest.raises(UserError, match="backbone_weights=FILE.*URL fetch"):
        model.load_initial_weights()


@pytest.mark.usefixtures("shallow")
def test_weights_or_images_that_do_not_fit_are_refused():
    with pytest.raises(UserError, match="train_backbone=true"):
        small_model(NAME, train_backbone=False).load_initial_weights()
    with pytest.raises(UserError, match="1 or 3 channels"):
        small_model(NAME, ImageShape(32, 32, 2, 3))


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("EfficientNetV2B0", "efficientnet_v2"),
        ("MobileNetV2", "mobilenet_v2"),
        ("MobileNetV3Small", "mobilenet_v3"),
        pytest.param("ResNet50V2", "resnet_v2", marks=pytest.mark.slow),
    ],
)
def test_features_are_those_of_keras_applications(name, module):
    images = keras.Input(IMAGES.shape[1:])
    tensors = layers.networks.photo_capsule(images, 3, backbone=name, types=2)
    backbone = keras.Model(images, tensors["features"])
    applications, shape = keras.applications, IMAGES.shape[1:]
    options = {"include_top": False, "weights": None, "input_shape": shape}
    network = getattr(applications, name)(**options)
    network.set_weights(backbone.get_weights())
    pixels = getattr(applications, module).preprocess_input(255 * IMAGES)
    expected = ops.convert_to_numpy(network(pixels, training=False))
    found = ops.convert_to_numpy(backbone(IMAGES, training=False))
    error = np.abs(found - expected).max()
    assert error < 1e-4 * np.ptp(expected)
    (body,) = (x for x in backbone.layers if isinstance(x, keras.Model))
    norms = [n for n in body.layers if "Norm" in type(n).__name__]
    momenta = [norm.momentum for norm in norms if hasattr(norm, "momentum")]
    assert set(momenta) == {0.9}


@pytest.mark.usefixtures("shallow")
def test_gray_images_are_repeated():
    gray, color = (small_model(NAME, ImageShape(32, 36, n, 3)) for n in (1, 3))
    gray.backbone.set_weights(color.backbone.get_weights())
    found = gray.activations(IMAGES[..., :1])["features"]
    repeated = np.repeat(IMAGES[..., :1], 3, axis=-1)
    expected = color.activations(repeated)["features"]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.usefixtures("shallow")
def test_what_needs_the_images_stores_no_features():
    frozen = {"train_backbone": False, "share_weights": True}
    model = small_model(NAME, remake=True, **frozen)
    assert not model.row.fits_any_size(model.hparams)
    assert model.training_data("data", 0, None) == "data"
    strides = math.prod(s for _, s, _ in model.receptive_field())
    grid = model.activations(IMAGES)["features"].shape[1:3]
    assert grid == (math.ceil(32 / strides), math.ceil(36 / strides))
    model = small_model(NAME, num_targets=2, remake=False, **frozen)
    assert model.row.fits_any_size(model.hparams)
    assert model.training_data("data", 0, None) == "data"


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    """A `Config` with the weights of a file and a frozen backbone."""
    folder = tmp_path_factory.mktemp("photos")
    weights = folder / "backbone.weights.h5"
    other_backbone().save_weights(weights)
    for part, count in (("train", 9), ("test", 5)):
        images = random_images(count, 32, 36, 3)
        np.save(folder / f"x_{part}.npy", images)
        np.save(folder / f"y_{part}.npy", np.arange(count) % 3)
    override = f"types=2,class_atoms=4,views=3,backbone_weights={weights}"
    data = {"dataset": "arrays", "data_dir": str(folder), "batch_size": 6}
    return {"model": NAME, "hparams_override": override, **data}


def train(settings, folder, **values):
    experiment.run(Config(summary_dir=str(folder), **settings, **values))
    return checkpoint_path(folder / "train", values["max_steps"])


def logits(path, settings):
    data_dir = settings["data_dir"]
    config = Config(train=False, checkpoint=str(path), data_dir=data_dir)
    return Evaluator(config).predict(open_checkpoint(path)).logits


@pytest.mark.usefixtures("shallow")
def test_kept_features_train_as_computed_ones(settings, tmp_path, monkeypatch):
    kept = train(settings, tmp_path / "kept", max_steps=3)
    with monkeypatch.context() as patch:
        patch.setattr(PhotoModel, "training_data", lambda *data: data[1])
        computed = train(settings, tmp_path / "computed", max_steps=3)
    assert_same_state(kept, computed, rtol=1e-3, atol=1e-5)
    both = (logits(path, settings) for path in (kept, computed))
    np.testing.assert_allclose(*both, atol=1e-4)


@pytest.mark.usefixtures("shallow")
def test_a_resumed_training_is_the_same(settings, tmp_path):
    whole = train(settings, tmp_path / "whole", max_steps=4, flip=True)
    for steps in (2, 4):
        parts = train(settings, tmp_path / "parts", max_steps=steps, flip=True)
    assert_same_state(whole, parts)
    settings = dict(settings)
    settings["hparams_override"] += ",train_backbone=true"
    with pytest.raises(UserError, match="other weights are trained"):
        train(settings, tmp_path / "parts", max_steps=5)


@pytest.mark.usefixtures("shallow")
def test_ctrl_c_stops_before_the_first_step(settings, tmp_path, monkeypatch):
    stop = mock.Mock(side_effect=lambda *_: signal.raise_signal(signal.SIGINT))
    monkeypatch.setattr(PhotoModel, "training_data", stop)
    with pytest.raises(Interrupted):
        train(settings, tmp_path, max_steps=1)


@pytest.mark.usefixtures("shallow")
@pytest.mark.parametrize("trains_all", [False, True])
def test_averages_belong_to_the_weights_trained_before(tmp_path, trains_all):
    values = {"ema": 0.9, "train_backbone": trains_all}
    network, old = untrained.small(NAME, SHAPE, **values)
    averages = network.optimizer._model_variables_moving_average
    trained = network.trainable_variables
    for weight, average in zip(trained, averages, strict=True):
        average.assign(weight + 1)
    expected = [w + 1 if w.trainable else w for w in network.weights]
    opened = open_checkpoint(untrained.save(tmp_path, network, old))

    def other(**values):
        hparams = dataclasses.replace(old.hparams, **values)
        return dataclasses.replace(old, hparams=hparams)

    new = other(train_backbone=not trains_all)
    model = new.build()
    opened.load(model, new)
    for found, wanted in zip(model.get_weights(), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert opened.can_continue(other(learning_rate=0.5).build())
    for changed in (new, other(ema=0.0)):
        assert not opened.can_continue(changed.build())
    compile_model(model)
    with pytest.raises(UserError, match="could not be loaded"):
        opened.load(model, new)
