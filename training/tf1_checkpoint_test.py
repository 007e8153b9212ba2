"""TF1 checkpoints against a network that is written from the paper's text.

The files are written by TF1's own Saver from variables with the reference's
names. The expected outputs come from a channels-first forward pass in NumPy
(float64) that shares nothing with the layers.
"""

import dataclasses
import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from errors import UserError
from experiment import run
from input_data import features as keys
from input_data.features import ImageShape
from models.hparams import HParams
from models.optimizer import make_optimizer
from training import checkpoint, tf1_checkpoint
from training.architecture import Architecture
from training.config import Config
from training.evaluation import (
    evaluate_continuously,
    evaluate_ensemble,
    evaluate_once,
)
from training.train import train

v1 = tf.compat.v1
STEP = 7


def architecture_of(
    height=20,
    width=22,
    depth=1,
    classes=3,
    model="capsule",
    num_targets=1,
    **hparams,
):
    hparams = {"num_prime_capsules": 2, **hparams}
    return Architecture(
        model,
        ImageShape(height, width, depth, classes),
        num_targets,
        HParams(**hparams),
    )


# The reference's variables, by hand: the positions of the primary capsules
# (of the last pool) that an image of the tests leaves.
POSITIONS = {
    ("capsule", "VALID", 20, 22): (2, 3),
    ("capsule", "SAME", 11, 13): (6, 7),
    ("capsule", "VALID", 28, 28): (6, 6),
    ("baseline", "VALID", 20, 22): (2, 3),
    ("baseline", "SAME", 11, 13): (3, 4),
}


def positions_of(architecture):
    shape = architecture.shape
    return POSITIONS[
        architecture.model,
        architecture.hparams.padding,
        shape.height,
        shape.width,
    ]


def shapes_of(architecture):
    height, width, depth, classes = dataclasses.astuple(architecture.shape)
    rows, columns = positions_of(architecture)
    types = architecture.hparams.num_prime_capsules
    if architecture.model == "baseline":
        return {
            "conv1/weights": (5, 5, depth, 512),
            "conv1/biases": (512,),
            "conv2/weights": (5, 5, 512, 256),
            "conv2/biases": (256,),
            "fc1/weights": (256 * rows * columns, 1024),
            "fc1/biases": (1024,),
            "softmax_layer/weights": (1024, classes),
            "softmax_layer/biases": (classes,),
        }
    shapes = {
        "conv1/weights": (9, 9, depth, 256),
        "conv1/biases": (256,),
        "conv_capsule1/weights": (9, 9, 256, types * 8),
        "conv_capsule1/biases": (types, 8, 1, 1),
        "capsule2/weights": (types * rows * columns, 8, classes * 16),
        "capsule2/biases": (classes, 16),
    }
    if architecture.hparams.remake:
        pixels = height * width * depth
        shapes |= {
            "recons/recons_1/weights": (classes * 16, 512),
            "recons/recons_1/biases": (512,),
            "recons/recons_2/weights": (512, 1024),
            "recons/recons_2/biases": (1024,),
            "recons/recons_3/weights": (1024, pixels),
            "recons/recons_3/biases": (pixels,),
        }
    return shapes


def random_variables(architecture, seed=0, slots=True, step=STEP):
    """Everything in a TF1 checkpoint, all of it different numbers."""
    random = np.random.default_rng(seed)
    values = {}
    for name, shape in shapes_of(architecture).items():
        # Large enough that capsules are neither all 0 nor all 1 long.
        scale = 0.3 if name == "capsule2/weights" else 0.05
        if name.endswith("biases"):
            scale = 0.2
        values[name] = random.normal(0.0, scale, shape)
        if slots:
            values[name + "/Adam"] = random.normal(0.0, 1e-3, shape)
            values[name + "/Adam_1"] = random.uniform(1e-6, 1e-3, shape)
    if slots:
        values["beta1_power"] = 0.9 ** (step + 1)
        values["beta2_power"] = 0.999 ** (step + 1)
    values["global_step"] = float(step)
    return {name: np.float32(value) for name, value in values.items()}


def write(prefix, values, version=v1.train.SaverDef.V2):
    with tf.Graph().as_default(), v1.Session() as session:
        variables = [
            v1.get_variable(name, initializer=value)
            for name, value in values.items()
        ]
        session.run(v1.global_variables_initializer())
        v1.train.Saver(variables, write_version=version).save(
            session, str(prefix), write_meta_graph=False
        )
    return str(prefix)


def read(prefix):
    reader = tf.train.load_checkpoint(str(prefix))
    return {
        name: reader.get_tensor(name)
        for name in reader.get_variable_to_shape_map()
    }


def assert_same(values, expected):
    assert values.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(values[name], value, err_msg=name)
        assert values[name].dtype == value.dtype


# The network, channels first.


def conv(images, weights, strides, padding):
    """[B, C, H, W] with weights [k, k, C, D] -> [B, D, h, w]."""
    size = weights.shape[0]
    if padding == "SAME":
        pads = []
        for length in images.shape[2:]:
            out = -(-length // strides)
            total = max((out - 1) * strides + size - length, 0)
            pads.append((total // 2, total - total // 2))
        images = np.pad(images, [(0, 0), (0, 0), *pads])
    windows = np.lib.stride_tricks.sliding_window_view(
        images, (size, size), axis=(2, 3)
    )[:, :, ::strides, ::strides]
    return np.tensordot(windows, weights, [(1, 4, 5), (2, 0, 1)]).transpose(
        0, 3, 1, 2
    )


def relu(x):
    return np.maximum(x, 0.0)


def max_pool(images):
    """2x2, stride 2, SAME."""
    _, _, height, width = images.shape
    padded = np.pad(
        images,
        [(0, 0), (0, 0), (0, height % 2), (0, width % 2)],
        constant_values=-np.inf,
    )
    rows = np.maximum(padded[:, :, ::2], padded[:, :, 1::2])
    return np.maximum(rows[..., ::2], rows[..., 1::2])


def squash(s, axis):
    squared = (s**2).sum(axis, keepdims=True)
    return s / np.sqrt(squared) * squared / (1 + squared)


def route(votes, biases, iterations, leaky):
    """Votes [B, I, O, A, ...] and biases [O, A, ...] -> [B, O, A, ...]."""
    logits = np.zeros(np.delete(votes.shape, 3))
    for _ in range(iterations):
        exponentials = np.exp(logits)
        total = exponentials.sum(2, keepdims=True)
        couplings = exponentials / (total + 1.0 if leaky else total)
        s = (couplings[:, :, :, np.newaxis] * votes).sum(1) + biases
        v = squash(s, axis=2)
        logits = logits + (votes * v[:, np.newaxis]).sum(3)
    return v


def capsule_network(values, images, labels, hparams):
    """Class capsules' lengths, and for each label the image redrawn."""
    padding, leaky = hparams.padding, hparams.leaky
    hidden = relu(
        conv(images, values["conv1/weights"], 1, padding)
        + values["conv1/biases"][:, np.newaxis, np.newaxis]
    )
    votes = conv(hidden, values["conv_capsule1/weights"], 2, padding)
    biases = values["conv_capsule1/biases"]
    votes = votes.reshape(
        len(images), 1, *biases.shape[:2], *votes.shape[2:]
    )
    primary = route(votes, biases, 1, leaky)  # [B, types, 8, h, w]
    primary = primary.transpose(0, 1, 3, 4, 2).reshape(len(images), -1, 8)
    weights, biases = values["capsule2/weights"], values["capsule2/biases"]
    tiled = np.tile(primary[..., np.newaxis], (1, 1, 1, weights.shape[-1]))
    votes = (tiled * weights).sum(2).reshape(*primary.shape[:2], *biases.shape)
    capsules = route(votes, biases, hparams.routing, leaky)
    redrawn = []
    for label in labels if hparams.remake else ():
        masked = np.zeros_like(capsules)
        for example, kept in enumerate(label):
            masked[example, kept] = capsules[example, kept]
        x = masked.reshape(len(images), -1)
        for number in (1, 2, 3):
            x = x @ values[f"recons/recons_{number}/weights"]
            x = x + values[f"recons/recons_{number}/biases"]
            x = relu(x) if number < 3 else 1.0 / (1.0 + np.exp(-x))
        redrawn.append(x.reshape(images.shape))
    return np.sqrt((capsules**2).sum(-1)), redrawn


def baseline_network(values, images, hparams):
    x = images
    for name in ("conv1", "conv2"):
        x = conv(x, values[f"{name}/weights"], 1, hparams.padding)
        x = x + values[f"{name}/biases"][:, np.newaxis, np.newaxis]
        x = max_pool(relu(x))
    x = x.reshape(len(images), -1)
    x = relu(x @ values["fc1/weights"] + values["fc1/biases"])
    return x @ values["softmax_layer/weights"] + values["softmax_layer/biases"]


def in_float64(values):
    return {name: value.astype(np.float64) for name, value in values.items()}


def examples(architecture, seed=1):
    """Images [B, H, W, C] and as many rows of labels as there are targets."""
    random = np.random.default_rng(seed)
    height, width, depth, classes = dataclasses.astuple(architecture.shape)
    images = random.uniform(size=(4, height, width, depth)).astype("float32")
    labels = random.integers(0, classes, (architecture.num_targets, 4))
    return images, labels.astype("int32")


@pytest.mark.parametrize(
    "settings",
    [
        {"depth": 1},
        {"depth": 1, "leaky": True, "remake": False},
        {"depth": 2, "leaky": True, "routing": 1},
        {"depth": 3, "num_prime_capsules": 3},
        {"depth": 3, "remake": False},
        {"depth": 1, "padding": "SAME", "leaky": True, "remake": False},
        {"depth": 2, "padding": "SAME", "num_targets": 2},
        {"depth": 3, "padding": "SAME", "leaky": True},
    ],
    ids=str,
)
def test_capsule_model_computes_what_the_reference_does(tmp_path, settings):
    if settings.get("padding") == "SAME":
        settings = {"height": 11, "width": 13, **settings}
    architecture = architecture_of(**settings)
    values = random_variables(architecture, slots=settings["depth"] == 2)
    prefix = write(tmp_path / "model.ckpt-7", values)
    images, labels = examples(architecture)
    model = architecture.build()

    tf1_checkpoint.Tf1Checkpoint(prefix).load(model, architecture)
    x = {keys.IMAGES: images}
    x |= dict(zip(keys.LABEL_BY_TARGET, labels, strict=False))
    outputs = model.predict_on_batch(x)

    lengths, redrawn = capsule_network(
        in_float64(values),
        images.transpose(0, 3, 1, 2).astype(np.float64),
        labels,
        architecture.hparams,
    )
    assert lengths.std() > 0.01  # a wrong order would show
    np.testing.assert_allclose(outputs[keys.LOGITS], lengths, atol=1e-5)
    names = [name for name in keys.RECONS_BY_TARGET if name in outputs]
    assert len(names) == len(redrawn)
    for name, expected in zip(names, redrawn, strict=True):
        assert expected.std() > 0.01
        np.testing.assert_allclose(
            outputs[name], expected.transpose(0, 2, 3, 1), atol=1e-5
        )


@pytest.mark.parametrize(
    "settings",
    [
        {"depth": 1},
        {"depth": 3},
        {"depth": 2, "padding": "SAME", "height": 11, "width": 13},
    ],
    ids=str,
)
def test_baseline_computes_what_the_reference_does(tmp_path, settings):
    architecture = architecture_of(model="baseline", **settings)
    values = random_variables(architecture, slots=settings["depth"] == 2)
    values["conv2/weights"] /= 10.0  # keeps the logits near 1
    prefix = write(tmp_path / "model.ckpt-7", values)
    images, _ = examples(architecture)
    model = architecture.build()

    tf1_checkpoint.Tf1Checkpoint(prefix).load(model, architecture)
    logits = model.predict_on_batch({keys.IMAGES: images})[keys.LOGITS]

    expected = baseline_network(
        in_float64(values),
        images.transpose(0, 3, 1, 2).astype(np.float64),
        architecture.hparams,
    )
    assert expected.std() > 0.01
    np.testing.assert_allclose(logits, expected, atol=1e-5)
