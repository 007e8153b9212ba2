"""TF1 checkpoints against the reference's network in NumPy.

The expected outputs come from a channels-first forward pass in float64 that
shares no code with the layers.
"""

import dataclasses

import numpy as np
import pytest

from common.errors import UserError
from input_data import features as keys
from models.optimizer import compile_model
from testing.tf1_examples import random_variables, small, write
from training import checkpoint, tf1_checkpoint
from training.tf1_checkpoint import Tf1Checkpoint

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
    """Lengths of the class capsules, and the reconstruction of each label."""
    padding, leaky = hparams.padding, hparams.leaky
    hidden = relu(
        conv(images, values["conv1/weights"], 1, padding)
        + values["conv1/biases"][:, np.newaxis, np.newaxis]
    )
    votes = conv(hidden, values["conv_capsule1/weights"], 2, padding)
    biases = values["conv_capsule1/biases"]
    votes = votes.reshape(len(images), 1, *biases.shape[:2], *votes.shape[2:])
    primary = route(votes, biases, 1, leaky)  # [B, types, 8, h, w]
    primary = primary.transpose(0, 1, 3, 4, 2).reshape(len(images), -1, 8)
    weights, biases = values["capsule2/weights"], values["capsule2/biases"]
    tiled = np.tile(primary[..., np.newaxis], (1, 1, 1, weights.shape[-1]))
    votes = (tiled * weights).sum(2).reshape(*primary.shape[:2], *biases.shape)
    capsules = route(votes, biases, hparams.routing, leaky)
    reconstructions = []
    for label in labels if hparams.remake else ():
        masked = np.zeros_like(capsules)
        for example, kept in enumerate(label):
            masked[example, kept] = capsules[example, kept]
        x = masked.reshape(len(images), -1)
        for number in (1, 2, 3):
            x = x @ values[f"recons/recons_{number}/weights"]
            x = x + values[f"recons/recons_{number}/biases"]
            x = relu(x) if number < 3 else 1.0 / (1.0 + np.exp(-x))
        reconstructions.append(x.reshape(images.shape))
    return np.sqrt((capsules**2).sum(-1)), reconstructions


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
        {"depth": 1, "leaky": True, "remake": False},
        {"depth": 2, "leaky": True, "routing": 1},
        {"depth": 3, "num_prime_capsules": 3},
        {"depth": 2, "padding": "SAME", "num_targets": 2},
        {"depth": 3, "padding": "SAME", "leaky": True},
    ],
    ids=str,
)
def test_capsule_model_computes_what_the_reference_does(tmp_path, settings):
    if settings.get("padding") == "SAME":
        settings = {"height": 11, "width": 13, **settings}
    architecture = small(**settings)
    values = random_variables(architecture, slots=settings["depth"] == 2)
    prefix = write(tmp_path / "model.ckpt-7", values)
    images, labels = examples(architecture)
    model = architecture.build()

    Tf1Checkpoint(prefix).load(model, architecture)
    x = {keys.IMAGES: images}
    x |= dict(zip(keys.LABEL_BY_TARGET, labels, strict=False))
    outputs = model(x)

    lengths, reconstructions = capsule_network(
        in_float64(values),
        images.transpose(0, 3, 1, 2).astype(np.float64),
        labels,
        architecture.hparams,
    )
    assert lengths.std() > 0.01  # a wrong order would show
    np.testing.assert_allclose(outputs[keys.LOGITS], lengths, atol=1e-5)
    names = [name for name in keys.RECONS_BY_TARGET if name in outputs]
    assert len(names) == len(reconstructions)
    for name, expected in zip(names, reconstructions, strict=True):
        assert expected.std() > 0.01
        np.testing.assert_allclose(
            outputs[name], expected.transpose(0, 2, 3, 1), atol=1e-5
        )


@pytest.mark.parametrize(
    "settings",
    [{"depth": 3}, {"padding": "SAME", "height": 11, "width": 13}],
    ids=str,
)
def test_baseline_computes_what_the_reference_does(tmp_path, settings):
    architecture = small(model="baseline", **settings)
    values = random_variables(architecture, slots=False)
    prefix = write(tmp_path / "model.ckpt-7", values)
    images, _ = examples(architecture)
    model = architecture.build()

    Tf1Checkpoint(prefix).load(model, architecture)
    logits = model({keys.IMAGES: images})[keys.LOGITS]

    expected = baseline_network(
        in_float64(values),
        images.transpose(0, 3, 1, 2).astype(np.float64),
        architecture.hparams,
    )
    assert expected.std() > 0.01
    np.testing.assert_allclose(logits, expected, atol=1e-5)


def moment_of(model, variable, slot):
    suffix = f"{variable.path.replace('/', '_')}_{slot}"
    variables = model.optimizer.variables
    return next(v for v in variables if v.path.endswith(suffix)).numpy()


def convert(prefix, folder, architecture):
    network = tf1_checkpoint.Network(
        architecture.model,
        ",".join(
            f"{name}={value}"
            for name, value in dataclasses.asdict(architecture.hparams).items()
        ),
        *dataclasses.astuple(architecture.shape),
        architecture.num_targets,
    )
    return tf1_checkpoint.convert(prefix, folder, network)


@pytest.mark.parametrize("slots", [True, False])
def test_conversion_keeps_weights_moments_and_step(tmp_path, slots):
    architecture = small()
    values = random_variables(architecture, slots=slots)
    prefix = write(tmp_path / "model.ckpt-7", values)
    path = convert(prefix, tmp_path / "converted", architecture)
    assert path.name == "model.ckpt-7"
    opened = checkpoint.open_checkpoint(path)
    assert opened.has_slots == slots
    assert opened.architecture == architecture
    model = architecture.build()
    compile_model(model, max_steps=1)
    opened.load(model, architecture)
    assert int(model.optimizer.iterations.numpy()) == 7
    np.testing.assert_array_equal(
        model.conv1.kernel.numpy(), values["conv1/weights"]
    )
    moment = moment_of(model, model.conv1.kernel, "velocity")
    expected = values["conv1/weights/Adam_1"] if slots else 0 * moment
    np.testing.assert_array_equal(moment, expected)


def test_permuted_moments(tmp_path):
    """Adam's moments are permuted like their weights."""
    architecture = small(remake=False)
    values = random_variables(architecture)
    for suffix in ("Adam", "Adam_1"):
        name = f"capsule2/weights/{suffix}"
        values[name] = values["capsule2/weights"]
    prefix = write(tmp_path / "model.ckpt-7", values)
    model = architecture.build()
    compile_model(model, max_steps=1)
    Tf1Checkpoint(prefix).load(model, architecture)
    weights = model.capsule2.kernel
    for slot in ("momentum", "velocity"):
        moment = moment_of(model, weights, slot)
        np.testing.assert_array_equal(moment, weights.numpy())


@pytest.mark.parametrize(
    "settings",
    [{"num_prime_capsules": 3}, {"remake": False}, {"model": "baseline"}],
    ids=str,
)
def test_another_network_is_refused(tmp_path, settings):
    prefix = write(tmp_path / "model.ckpt-7", random_variables(small()))
    other = small(**settings)
    model = other.build()
    before = [weight.numpy() for weight in model.weights]
    with pytest.raises(UserError, match="model.ckpt-7"):
        Tf1Checkpoint(prefix).load(model, other)
    for weight, value in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(weight.numpy(), value)


def test_damaged_files_are_refused(tmp_path):
    prefix = write(tmp_path / "model.ckpt-7", random_variables(small()))
    architecture = small()
    data = next(tmp_path.glob("*.data*"))
    data.write_bytes(data.read_bytes()[:1000])
    with pytest.raises(UserError, match="model.ckpt-7"):
        Tf1Checkpoint(prefix).load(architecture.build(), architecture)
    (tmp_path / "model.ckpt-7.index").write_bytes(b"none")
    with pytest.raises(UserError, match="model.ckpt-7"):
        Tf1Checkpoint(prefix)
