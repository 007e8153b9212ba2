"""TF1 checkpoints against the reference's network in NumPy.

The expected outputs come from a forward pass in float64 that shares no code
with the layers. The reference numbers capsules and pixels channels first.
Names and shapes are written out here from the reference's, and TF1's own
Saver writes the files.
"""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from common.errors import UserError
from input_data import features as keys
from input_data.features import ImageShape
from models.optimizer import compile_model
from models.registry import model_class
from testing import numpy_oracle
from training import tf1_checkpoint
from training.checkpoint import Architecture
from training.formats import open_checkpoint
from training.tf1_checkpoint import Tf1Checkpoint

v1 = tf.compat.v1


SIZES = {
    "capsule": {"conv_channels": 16, "num_prime_capsules": 2},
    "baseline": {"first_channels": 8, "second_channels": 6, "dense_units": 12},
}


def small(
    model="capsule", height=20, width=22, depth=1, num_targets=1, **hparams
):
    """A small network, by default on images that are not square."""
    hparams = model_class(model).HParams(**{**SIZES[model], **hparams})
    shape = ImageShape(height, width, depth, 3)
    return Architecture(model, shape, num_targets, hparams)


# The reference's variables, by hand: the positions of the primary capsules
# (of the last pool) that an image of the tests leaves.
POSITIONS = {
    ("capsule", "VALID", 20, 22): (2, 3),
    ("capsule", "SAME", 11, 13): (6, 7),
    ("baseline", "VALID", 20, 22): (2, 3),
    ("baseline", "SAME", 11, 13): (3, 4),
}


def shapes_of(architecture):
    """Dict from the reference's name to shape, the weights alone."""
    height, width, depth, classes = dataclasses.astuple(architecture.shape)
    hparams = architecture.hparams
    rows, columns = POSITIONS[
        architecture.model, hparams.padding, height, width
    ]
    if architecture.model == "baseline":
        first, second = hparams.first_channels, hparams.second_channels
        units = hparams.dense_units
        return {
            "conv1/weights": (5, 5, depth, first),
            "conv1/biases": (first,),
            "conv2/weights": (5, 5, first, second),
            "conv2/biases": (second,),
            "fc1/weights": (second * rows * columns, units),
            "fc1/biases": (units,),
            "softmax_layer/weights": (units, classes),
            "softmax_layer/biases": (classes,),
        }
    types, channels = hparams.num_prime_capsules, hparams.conv_channels
    shapes = {
        "conv1/weights": (9, 9, depth, channels),
        "conv1/biases": (channels,),
        "conv_capsule1/weights": (9, 9, channels, types * 8),
        "conv_capsule1/biases": (types, 8, 1, 1),
        "capsule2/weights": (types * rows * columns, 8, classes * 16),
        "capsule2/biases": (classes, 16),
    }
    if hparams.remake:
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


def random_variables(architecture, slots=True, step=7):
    """Everything in a TF1 checkpoint, all of it different numbers."""
    random = np.random.default_rng(0)
    values = {}
    for name, shape in shapes_of(architecture).items():
        # Large enough that capsules are neither all 0 nor all 1 long.
        scale = 0.3 if name == "capsule2/weights" else 0.05
        if name.endswith("biases"):
            scale = 0.2
        values[name] = scale * random.standard_normal(shape, "float32")
        if slots:
            values[name + "/Adam"] = 1e-3 * random.standard_normal(
                shape, "float32"
            )
            values[name + "/Adam_1"] = 1e-3 * random.random(shape, "float32")
    if slots:
        values["beta1_power"] = 0.9 ** (step + 1)
        values["beta2_power"] = 0.999 ** (step + 1)
    values["global_step"] = float(step)
    return {name: np.float32(value) for name, value in values.items()}


def write(prefix, values):
    with tf.Graph().as_default(), v1.Session() as session:
        variables = [
            v1.get_variable(name, initializer=value)
            for name, value in values.items()
        ]
        session.run(v1.global_variables_initializer())
        saver = v1.train.Saver(variables)
        saver.save(session, str(prefix), write_meta_graph=False)
    return str(prefix)


def max_pool(images):
    """2x2, stride 2, SAME."""
    _, height, width, _ = images.shape
    padded = np.pad(
        images,
        [(0, 0), (0, height % 2), (0, width % 2), (0, 0)],
        constant_values=-np.inf,
    )
    rows = np.maximum(padded[:, ::2], padded[:, 1::2])
    return np.maximum(rows[:, :, ::2], rows[:, :, 1::2])


def channels_first(x):
    return np.moveaxis(x, 3, 1)


def capsule_network(values, images, labels, hparams):
    """Lengths of the class capsules, and the reconstruction of each label."""
    count, height, width, depth = images.shape
    padding, leaky = hparams.padding, hparams.leaky

    def copies(name):
        return np.broadcast_to(values[name], (count, *values[name].shape))

    hidden = numpy_oracle.convolution(
        images, values["conv1/weights"], 1, padding
    )
    hidden = np.maximum(hidden + values["conv1/biases"], 0)
    primary = numpy_oracle.conv_slim_capsule(
        hidden[:, :, :, np.newaxis],
        copies("conv_capsule1/weights"),
        copies("conv_capsule1/biases")[..., 0, 0],
        *(2, padding, 1, leaky),
    )
    capsules = numpy_oracle.capsule(
        channels_first(primary).reshape(count, -1, 8),
        copies("capsule2/weights"),
        copies("capsule2/biases"),
        *(hparams.routing, leaky),
    )
    dense = [
        value
        for name, value in values.items()
        if name.startswith("recons/") and "Adam" not in name
    ]
    reconstructions = [
        numpy_oracle.decoder(capsules, label, dense)
        .reshape(count, depth, height, width)
        .transpose(0, 2, 3, 1)
        for label in (labels if hparams.remake else ())
    ]
    return np.sqrt((capsules**2).sum(-1)), reconstructions


def baseline_network(values, images, labels, hparams):
    x = images
    for name in ("conv1", "conv2"):
        kernel, biases = values[f"{name}/weights"], values[f"{name}/biases"]
        x = numpy_oracle.convolution(x, kernel, 1, hparams.padding) + biases
        x = max_pool(np.maximum(x, 0))
    x = channels_first(x).reshape(len(images), -1)
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
        {"depth": 3, "padding": "SAME", "leaky": True},
        {"depth": 3, "model": "baseline"},
        {"depth": 1, "model": "baseline", "padding": "SAME"},
    ],
    ids=str,
)
def test_models_compute_what_the_reference_does(tmp_path, settings):
    if settings.get("padding") == "SAME":
        settings = {"height": 11, "width": 13, **settings}
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
    logits, reconstructions = networks[architecture.model](
        {name: value.astype(np.float64) for name, value in values.items()},
        images.astype(np.float64),
        labels,
        architecture.hparams,
    )
    names = [name for name in keys.RECONS_BY_TARGET if name in outputs]
    for name, expected in zip(
        (keys.LOGITS, *names), (logits, *reconstructions), strict=True
    ):
        assert expected.std() > 0.01  # a wrong order would show
        np.testing.assert_allclose(outputs[name], expected, atol=1e-5)


def moment_of(model, variable, slot):
    suffix = f"{variable.path.replace('/', '_')}_{slot}"
    variables = model.optimizer.variables
    return next(v for v in variables if v.path.endswith(suffix)).numpy()


def convert(prefix, folder, architecture):
    network = tf1_checkpoint.NetworkFlags(
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
    for suffix in ("Adam", "Adam_1") if slots else ():
        name = f"capsule2/weights/{suffix}"
        values[name] = values["capsule2/weights"]
    prefix = write(tmp_path / "model.ckpt-7", values)
    path = convert(prefix, tmp_path / "converted", architecture)
    assert path.name == "model.ckpt-7"
    opened = open_checkpoint(path)
    assert opened.has_optimizer_state == slots
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
    weights = model.capsule2.kernel
    for slot in ("momentum", "velocity"):  # permuted like their weights
        moment = moment_of(model, weights, slot)
        np.testing.assert_array_equal(moment, slots * weights.numpy())


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
