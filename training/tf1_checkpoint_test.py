"""TF1 checkpoints, written by TF1's Saver, against the reference in NumPy.

The reference numbers capsules and pixels channels first.
"""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from common.errors import UserError
from input_data import keys
from models.architecture import Architecture
from models.optimizer import compile_model
from models.table import find_model
from testing import numpy_oracle
from training import tf1_checkpoint
from training.formats import open_checkpoint
from training.tf1_checkpoint import Tf1Checkpoint

v1 = tf.compat.v1
SIZES = {
    "capsule": {"conv_channels": 16, "num_prime_capsules": 2},
    "baseline": {"first_channels": 8, "second_channels": 6, "dense_units": 12},
}


def small(model="capsule", depth=1, num_targets=1, **hparams):
    """A small network on images that are not square."""
    hparams = find_model(model).hparams(**{**SIZES[model], **hparams})
    size = {"VALID": (20, 22), "SAME": (11, 13)}[hparams.padding]
    return Architecture(
        model, keys.ImageShape(*size, depth, 3), num_targets, hparams
    )


# By hand: the positions of the primary capsules (of the last pool).
POSITIONS = {
    "capsule": {"VALID": (2, 3), "SAME": (6, 7)},
    "baseline": {"VALID": (2, 3), "SAME": (3, 4)},
}


def shapes_of(architecture):
    """Dict from the reference's name to shape, the weights alone."""
    height, width, depth, classes = dataclasses.astuple(architecture.shape)
    hparams = architecture.hparams
    rows, columns = POSITIONS[architecture.model][hparams.padding]
    if architecture.model == "baseline":
        first, second = hparams.first_channels, hparams.second_channels
        kernels = {
            "conv1": (5, 5, depth, first),
            "conv2": (5, 5, first, second),
            "fc1": (second * rows * columns, hparams.dense_units),
            "softmax_layer": (hparams.dense_units, classes),
        }
        biases = {}
    else:
        types, channels = hparams.num_prime_capsules, hparams.conv_channels
        kernels = {
            "conv1": (9, 9, depth, channels),
            "conv_capsule1": (9, 9, channels, types * 8),
            "capsule2": (types * rows * columns, 8, classes * 16),
        }
        biases = {"conv_capsule1": (types, 8, 1, 1), "capsule2": (classes, 16)}
        if hparams.remake:
            units = classes * 16, 512, 1024, height * width * depth
            kernels |= {
                f"recons/recons_{n}": units[n - 1 : n + 1] for n in (1, 2, 3)
            }
    shapes = {}
    for name, shape in kernels.items():
        shapes[f"{name}/weights"] = shape
        shapes[f"{name}/biases"] = biases.get(name, shape[-1:])
    return shapes


def random_variables(architecture, slots=True, step=7):
    """Everything in a TF1 checkpoint, all of it different numbers."""
    random = np.random.default_rng(0)
    values = {"global_step": step}
    for name, shape in shapes_of(architecture).items():
        # Large enough that capsules are neither all 0 nor all 1 long.
        scale = 0.2 if name.endswith("biases") else 0.05
        scale = {"capsule2/weights": 0.3}.get(name, scale)
        values[name] = scale * random.standard_normal(shape)
        if slots:
            values[name + "/Adam"] = 1e-3 * random.standard_normal(shape)
            values[name + "/Adam_1"] = 1e-3 * random.random(shape)
    if slots:
        values["beta1_power"] = 0.9 ** (step + 1)
        values["beta2_power"] = 0.999 ** (step + 1)
    return {name: np.float32(value) for name, value in values.items()}


def write(prefix, values):
    with tf.Graph().as_default(), v1.Session() as session:
        for name, value in values.items():
            v1.get_variable(name, initializer=value)
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, str(prefix), write_meta_graph=False)
    return str(prefix)


def convolved(x, values, name, padding):
    kernel, biases = values[f"{name}/weights"], values[f"{name}/biases"]
    x = numpy_oracle.convolution(x, kernel, 1, padding)
    return np.maximum(x + biases, 0)


def capsule_network(values, images, labels, hparams):
    """Lengths of the class capsules, and the reconstruction of each label."""
    count, height, width, depth = images.shape
    padding, leaky = hparams.padding, hparams.leaky

    def copies(name):
        return np.broadcast_to(values[name], (count, *values[name].shape))

    hidden = convolved(images, values, "conv1", padding)
    primary = numpy_oracle.conv_slim_capsule(
        hidden[:, :, :, np.newaxis],
        copies("conv_capsule1/weights"),
        copies("conv_capsule1/biases")[..., 0, 0],
        *(2, padding, 1, leaky),
    )
    capsules = numpy_oracle.capsule(
        np.moveaxis(primary, 3, 1).reshape(count, -1, 8),
        copies("capsule2/weights"),
        copies("capsule2/biases"),
        *(hparams.routing, leaky),
    )
    names = [n for n in values if n.startswith("recons/") and "Adam" not in n]
    dense, reconstructions = [values[name] for name in names], []
    for label in labels if hparams.remake else ():
        pixels = numpy_oracle.decoder(capsules, label, dense)
        pixels = pixels.reshape(count, depth, height, width)
        reconstructions.append(pixels.transpose(0, 2, 3, 1))
    return np.sqrt((capsules**2).sum(-1)), reconstructions


def baseline_network(values, images, labels, hparams):
    x = images
    for name in ("conv1", "conv2"):
        x = convolved(x, values, name, hparams.padding)
        x = tf.nn.max_pool2d(x, 2, 2, "SAME").numpy()
    x = np.moveaxis(x, 3, 1).reshape(len(images), -1)
    x = np.maximum(x @ values["fc1/weights"] + values["fc1/biases"], 0)
    logits = x @ values["softmax_layer/weights"]
    return logits + values["softmax_layer/biases"], []


@pytest.mark.parametrize(
    "settings",
    [
        {"depth": 1, "leaky": True, "remake": False},
        {"depth": 2, "leaky": True, "routing": 1},
        {"depth": 3, "num_prime_capsules": 3},
        {"depth": 2, "padding": "SAME", "num_targets": 2},
        {"depth": 3, "model": "baseline"},
        {"depth": 1, "model": "baseline", "padding": "SAME"},
    ],
    ids=str,
)
def test_models_compute_what_the_reference_does(tmp_path, settings):
    architecture = small(**settings)
    values = random_variables(architecture, slots=settings["depth"] == 2)
    prefix = write(tmp_path / "model.ckpt-7", values)
    random = np.random.default_rng(1)
    height, width, depth, classes = dataclasses.astuple(architecture.shape)
    images = random.uniform(size=(4, height, width, depth)).astype("float32")
    labels = random.integers(0, classes, (architecture.num_targets, 4))
    model = architecture.build()

    Tf1Checkpoint(prefix).load(model, architecture)
    x = {keys.IMAGES: images}
    x |= zip(keys.LABEL_BY_TARGET, labels.astype("int32"), strict=False)
    outputs = model(x)

    networks = {"capsule": capsule_network, "baseline": baseline_network}
    wide = {name: value.astype(np.float64) for name, value in values.items()}
    logits, reconstructions = networks[architecture.model](
        wide, images.astype(np.float64), labels, architecture.hparams
    )
    names = [keys.LOGITS, *(k for k in keys.RECONS_BY_TARGET if k in outputs)]
    for name, expected in zip(names, (logits, *reconstructions), strict=True):
        assert expected.std() > 0.01  # a wrong order would show
        np.testing.assert_allclose(outputs[name], expected, atol=1e-5)


def moment_of(model, variable, slot):
    suffix = f"{variable.path.replace('/', '_')}_{slot}"
    variables = model.optimizer.variables
    return next(v for v in variables if v.path.endswith(suffix)).numpy()


@pytest.mark.parametrize("slots", [True, False])
def test_conversion_keeps_weights_moments_and_step(tmp_path, slots):
    architecture = small()
    values = random_variables(architecture, slots=slots)
    for suffix in ("Adam", "Adam_1") if slots else ():
        name = f"capsule2/weights/{suffix}"
        values[name] = values["capsule2/weights"]
    prefix = write(tmp_path / "model.ckpt-7", values)
    flags = "capsule", "conv_channels=16,num_prime_capsules=2"
    shape = dataclasses.astuple(architecture.shape)
    network = tf1_checkpoint.NetworkFlags(*flags, *shape)
    path = tf1_checkpoint.convert(prefix, tmp_path / "converted", network)
    assert path.name == "model.ckpt-7"
    opened = open_checkpoint(path)
    assert opened.has_optimizer_state == slots
    assert opened.architecture == architecture
    model = architecture.build()
    compile_model(model, max_steps=1)
    opened.load(model, architecture)
    assert int(model.optimizer.iterations.numpy()) == 7
    kernel = model.network.get_layer("conv1").kernel
    np.testing.assert_array_equal(kernel, values["conv1/weights"])
    moment = moment_of(model, kernel, "velocity")
    expected = values["conv1/weights/Adam_1"] if slots else 0 * moment
    np.testing.assert_array_equal(moment, expected)
    weights = model.network.get_layer("capsule2").kernel
    for slot in ("momentum", "velocity"):  # permuted like their weights
        moment = moment_of(model, weights, slot)
        np.testing.assert_array_equal(moment, slots * weights.numpy())


@pytest.mark.parametrize(
    "settings",
    [{"num_prime_capsules": 3}, {"remake": False}, {"model": "baseline"}, {}],
    ids=str,
)
def test_other_networks_and_damaged_files_are_refused(tmp_path, settings):
    prefix = write(tmp_path / "model.ckpt-7", random_variables(small()))
    if not settings:
        data = next(tmp_path.glob("*.data*"))
        data.write_bytes(data.read_bytes()[:1000])
    other = small(**settings)
    model = other.build()
    before = model.get_weights()
    with pytest.raises(UserError, match="model.ckpt-7"):
        Tf1Checkpoint(prefix).load(model, other)
    np.testing.assert_equal(model.get_weights(), before)
