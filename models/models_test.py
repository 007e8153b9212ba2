import dataclasses
import itertools

import keras
import numpy as np
import pytest
from keras import ops

from common.errors import UserError
from input_data import features as keys
from input_data.features import ImageShape
from models import (
    baseline,
    efficient_capsule,
    four_convolutions,
    matrix_capsule,
    shared_capsule,
)
from models.capsule import HParams
from models.optimizer import compile_model
from models.registry import MODELS, build_model, model_class
from testing import numpy_oracle
from testing.small_models import small_hparams

MNIST = ImageShape(28, 28, 1, 10)
CIFAR = ImageShape(24, 24, 3, 10)
SMALL = ImageShape(18, 20, 2, 3)
# Those of the reference, with its losses.
REFERENCE_MODELS = ["baseline", "capsule"]

SMALL_MATRIX_CAPSULES = matrix_capsule.HParams(
    **matrix_capsule.HParams.PRESETS["small"]
)

# Every model needs an entry.
WEIGHT_COUNTS = {
    "capsule": [
        (MNIST, HParams(), 8_215_728),
        (MNIST, HParams(remake=False), 6_804_384),
        # 81*3*256+256 + 81*256*512+512 + 9216*8*160+160
        (
            CIFAR,
            HParams(num_prime_capsules=64, padding="SAME", remake=False),
            62_464 + 10_617_344 + 11_796_640,
        ),
    ],
    # 25*512+512 + 25*512*256+256 + 4*4*256*1024+1024 + 1024*10+10
    "baseline": [
        (MNIST, baseline.HParams(), 13_312 + 3_277_056 + 4_195_328 + 10_250),
        # 25*3*512+512, ..., 6*6*256*1024+1024
        (
            CIFAR,
            baseline.HParams(padding="SAME"),
            38_912 + 3_277_056 + 9_438_208 + 10_250,
        ),
    ],
    # 9*64+64 + 9*64*64+64 + 9*64*128+128 + 9*128*128+128, then 128*160, or
    # 128*128+128 + 128*10+10
    "shared_capsule": [
        (MNIST, shared_capsule.HParams(), 279_488),
        (
            CIFAR,
            shared_capsule.HParams(share_weights=False),
            259_008 + 9 * 64 * 2 + 6 * 6 * 20_480,
        ),
    ],
    "pooling": [(MNIST, four_convolutions.PoolingHParams(), 276_810)],
    # With moving statistics.
    "efficient_capsule": [
        (MNIST, efficient_capsule.HParams(), 162_400 + 1_411_344),
        (
            ImageShape(36, 36, 1, 10),
            efficient_capsule.HParams(remake=False),
            155_232,
        ),
    ],
    # 25*2*32+32 + 32*32*17+32*17 + 2 * (9*32*32*16+2*32) + 32*5*16+2*5
    "matrix_capsule": [
        (ImageShape(32, 32, 2, 5), matrix_capsule.HParams(), 317_194),
        (ImageShape(32, 32, 2, 5), SMALL_MATRIX_CAPSULES, 68_754),
        (
            MNIST,
            dataclasses.replace(SMALL_MATRIX_CAPSULES, padding="SAME"),
            68_444,
        ),
    ],
}


def example_batch(shape, num_targets, size=4):
    generator = np.random.default_rng(5)
    labels = np.arange(size * num_targets) % shape.num_classes
    labels = labels.reshape(size, num_targets).astype("int32")
    one_hot = np.eye(shape.num_classes, dtype="float32")[labels]
    dimensions = (size, shape.height, shape.width, shape.depth)
    x = {keys.IMAGES: generator.uniform(size=dimensions).astype("float32")}
    y = {keys.LOGITS: one_hot.sum(axis=1)}
    for target in range(num_targets):
        x[keys.LABEL_BY_TARGET[target]] = labels[:, target]
        y[keys.RECONS_BY_TARGET[target]] = generator.uniform(
            size=dimensions
        ).astype("float32")
    return x, y


@pytest.mark.parametrize("name", sorted(MODELS))
def test_weight_counts(name):
    assert WEIGHT_COUNTS[name], f"no weight count for {name}"
    for shape, hparams, count in WEIGHT_COUNTS[name]:
        model = build_model(name, shape, 1, hparams)
        assert model.count_params() == count


def test_accuracies_are_shares_of_the_examples():
    model = build_model("capsule", MNIST, 2, small_hparams("capsule"))
    compile_model(model)
    x, y = example_batch(MNIST, 2, size=5)
    order = np.argsort(-ops.convert_to_numpy(model(x)[keys.LOGITS]))
    y[keys.LOGITS][:] = 0
    # Of the five predictions two are right, one is half right.
    for row, places in enumerate([(0, 1), (1, 0), (0, 2), (2, 3), (8, 9)]):
        y[keys.LOGITS][row, order[row, list(places)]] = 1
    logs = model.test_on_batch(x, y, return_dict=True)
    assert logs["accuracy"] == pytest.approx(2 / 5)
    assert logs["almost_accuracy"] == pytest.approx(3 / 5)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_the_seed_fixes_the_initial_weights(name):
    hparams = small_hparams(name)

    def weights(seed):
        return build_model(name, SMALL, 1, hparams, seed).get_weights()

    first, again, other = weights(1), weights(1), weights(2)
    for a, b, c in zip(first, again, other, strict=True):
        np.testing.assert_array_equal(a, b)
        assert np.ptp(a) == 0 or (a != c).any()  # biases are equal


@pytest.mark.parametrize(
    ("name", "stddevs"),
    [
        ("capsule", [0.05, 0.1, 0.1, 0.1, 0.1, 0.1]),
        ("baseline", [0.05, 0.05, 0.1, 0.1]),
    ],
)
def test_initial_weights_follow_the_reference(name, stddevs):
    model = build_model(name, MNIST, 1, model_class(name).HParams())
    kernels = [w for w in model.get_weights() if np.ptp(w) > 0]
    biases = [w for w in model.get_weights() if np.ptp(w) == 0]
    for kernel, stddev in zip(kernels, stddevs, strict=True):
        assert np.abs(kernel).max() <= 2 * stddev
        # The deviation of what is left of a normal distribution.
        np.testing.assert_allclose(kernel.std(), 0.8796 * stddev, rtol=0.02)
    assert len(biases) == len(kernels)
    for bias in biases:
        np.testing.assert_array_equal(bias, np.float32(0.1))


@pytest.mark.parametrize("num_targets", [1, 2])
def test_reconstructions_of_the_labels_or_the_longest_capsules(num_targets):
    model = build_model(
        "capsule", SMALL, num_targets, HParams(num_prime_capsules=1)
    )
    x, _ = example_batch(SMALL, num_targets)
    with_labels = model(x)
    names = keys.RECONS_BY_TARGET[:num_targets]
    assert set(with_labels) == {keys.LOGITS, keys.CAPSULES, *names}
    for name, label in zip(names, keys.LABEL_BY_TARGET, strict=False):
        expected = model.recons(with_labels[keys.CAPSULES], x[label])
        np.testing.assert_array_equal(
            ops.convert_to_numpy(with_labels[name]),
            ops.convert_to_numpy(expected),
        )

    without = model({keys.IMAGES: x[keys.IMAGES]})
    order = np.argsort(-ops.convert_to_numpy(without[keys.LOGITS]), axis=1)
    for target, name in enumerate(names):
        expected = model.recons(
            without[keys.CAPSULES], order[:, target].astype("int32")
        )
        np.testing.assert_array_equal(
            ops.convert_to_numpy(without[name]),
            ops.convert_to_numpy(expected),
        )


# Each pair of values of two arguments is met.
@pytest.mark.parametrize(
    ("name", "loss_type", "num_targets"),
    [
        (name, loss_type, 1 + (first + second) % 2)
        for first, name in enumerate(REFERENCE_MODELS)
        for second, loss_type in enumerate(("margin", "softmax", "sigmoid"))
    ],
)
def test_the_loss_is_classification_plus_reconstruction(
    name, loss_type, num_targets
):
    hparams = small_hparams(name, loss_type=loss_type)
    model = build_model(name, SMALL, num_targets, hparams)
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    x, y = example_batch(SMALL, num_targets)
    logs = model.train_on_batch(x, y, return_dict=True)
    outputs = {k: ops.convert_to_numpy(v) for k, v in model(x).items()}
    # float64, or 1 - p is rounded away.
    logits = outputs[keys.LOGITS].astype("float64")
    target = y[keys.LOGITS]
    losses = numpy_oracle.classification_loss(loss_type, target, logits)
    cost = losses.mean()
    np.testing.assert_allclose(
        logs["batch_classification_cost"], cost, rtol=1e-4
    )
    if model.decoder is None:
        np.testing.assert_allclose(logs["loss"], cost, rtol=1e-4)
        return
    error = 0.0005 * sum(
        ((outputs[r] - y[r]) ** 2).sum() / len(target)
        for r in keys.RECONS_BY_TARGET[:num_targets]
    )
    np.testing.assert_allclose(logs["reconstruction_error"], error, rtol=1e-4)
    np.testing.assert_allclose(logs["loss"], cost + error, rtol=1e-4)


def test_mixed_bfloat16_keeps_logits_and_weights_in_float32():
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        for name in sorted(MODELS):
            model = build_model(name, SMALL, 1, small_hparams(name))
            model.compile(keras.optimizers.SGD(0.01), run_eagerly=True)
            x, y = example_batch(SMALL, 1)
            logs = model.train_on_batch(x, y, return_dict=True)
            assert np.isfinite(logs["loss"])
            dtype = model(x)[keys.LOGITS].dtype
            assert keras.backend.standardize_dtype(dtype) == "float32"
            assert {w.dtype for w in model.weights} == {"float32"}
    finally:
        keras.config.set_dtype_policy("float32")


# Relative to the norm of the loss, or of one weight's gradient. The first
# layers' gradients carry the roundings of all layers.
BFLOAT16_LOSS_BOUND = 0.02
BFLOAT16_GRADIENT_BOUND = 0.1


@pytest.mark.parametrize(
    ("name", "num_targets"),
    [
        *itertools.product(REFERENCE_MODELS, (1, 2)),
        ("matrix_capsule", 1),
    ],
)
def test_mixed_bfloat16_losses_and_gradients(name, num_targets):
    hparams = {
        "capsule": HParams(num_prime_capsules=4, conv_channels=16),
        "baseline": baseline.HParams(
            first_channels=32, second_channels=16, dense_units=64
        ),
        # With smaller weights, rounded or not, all classes are the same.
        "matrix_capsule": small_hparams(
            "matrix_capsule",
            conv_channels=16,
            conv_stddev=0.2,
            kernel_stddev=0.5,
            conv_lambda=0.1,
            class_lambda=0.1,
        ),
    }[name]
    x, y = example_batch(SMALL, num_targets, size=16)
    weights, found = None, {}
    for policy in ("float32", "mixed_bfloat16"):
        keras.config.set_dtype_policy(policy)
        try:
            model = build_model(name, SMALL, num_targets, hparams)
        finally:
            keras.config.set_dtype_policy("float32")
        weights = weights or model.get_weights()
        model.set_weights(weights)
        # At a learning rate of 1 a step subtracts the gradients.
        model.compile(keras.optimizers.SGD(1.0), run_eagerly=True)
        loss = model.train_on_batch(x, y)
        after = model.get_weights()
        gradients = [w - a for w, a in zip(weights, after, strict=True)]
        found[policy] = [np.asarray(loss), *gradients]
    full, mixed = found.values()
    errors = [
        np.linalg.norm(b - a) / np.linalg.norm(a)
        for a, b in zip(full, mixed, strict=True)
    ]
    assert 0 < errors[0] < BFLOAT16_LOSS_BOUND
    assert max(errors[1:]) < BFLOAT16_GRADIENT_BOUND


@pytest.mark.parametrize(
    ("name", "hparams", "smallest"),
    [
        ("capsule", {"padding": "VALID"}, 17),
        ("capsule", {"padding": "SAME"}, 1),
        ("baseline", {"padding": "VALID"}, 13),
        ("baseline", {"padding": "SAME"}, 1),
        ("matrix_capsule", {"padding": "VALID"}, 17),
        ("matrix_capsule", {"padding": "SAME"}, 13),
        ("pooling", {}, 14),
        ("shared_capsule", {}, 14),
        ("efficient_capsule", {}, 11),
    ],
)
def test_the_smallest_image(name, hparams, smallest):
    hparams = small_hparams(name, **hparams)
    build_model(name, ImageShape(smallest, 40, 1, 2), 1, hparams)
    if smallest > 1:
        too_small = ImageShape(40, smallest - 1, 1, 2)
        with pytest.raises(UserError, match=f"{smallest}x{smallest}$"):
            build_model(name, too_small, 1, hparams)
