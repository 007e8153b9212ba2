import math

import numpy as np
import pytest
from keras import ops

from input_data import features as keys
from input_data.features import ImageShape
from models.efficient_capsule import (
    SMALLEST_IMAGE,
    EfficientCapsuleModel,
    HParams,
    layout,
)
from models.models_test import SMALL, example_batch
from models.optimizer import compile_model
from models.registry import build_model
from testing import numpy_oracle
from testing.small_models import small_hparams

NAME = "efficient_capsule"
RNG = np.random.default_rng(23)


def make(num_targets=1, shape=SMALL, **hparams):
    return build_model(NAME, shape, num_targets, small_hparams(NAME, **hparams))


def move_statistics(model):
    """Gives every normalization weights that change what it does."""
    generator = np.random.default_rng(2)
    for layer in model.normalizations:
        layer.set_weights(
            [generator.uniform(0.5, 1.5, w.shape) for w in layer.weights]
        )


def count(variables):
    return sum(math.prod(variable.shape) for variable in variables)


@pytest.mark.parametrize(
    ("size", "strides", "kernel"),
    [
        (28, (1, 1, 1, 2), 9),  # MNIST
        (36, (1, 1, 2, 2), 5),  # MultiMNIST
        (48, (2, 1, 1, 2), 8),  # smallNORB
        (32, (1, 1, 2, 2), 5),
        (96, (2, 2, 2, 2), 4),
    ],
)
def test_layout_of_the_published_sizes_and_of_others(size, strides, kernel):
    first = 7 if size >= 48 else 5
    expected = (first, 3, 3, 3), strides, (kernel, kernel)
    assert layout(size, size) == expected


def test_every_size_of_images_has_a_network():
    for height in range(SMALLEST_IMAGE, 130):
        for width in (SMALLEST_IMAGE, 47, 48, 90, 131):
            kernels, strides, primary_kernel = layout(height, width)
            left = [height, width]
            for size, stride in zip(kernels, strides, strict=True):
                left = [(pixels - size) // stride + 1 for pixels in left]
            for pixels, kernel in zip(left, primary_kernel, strict=True):
                assert pixels - 1 <= kernel <= pixels
                assert kernel >= 1


def test_trainable_weights_are_as_published():
    mnist = ImageShape(28, 28, 1, 10)
    model = build_model(NAME, mnist, 1, HParams())
    decoder = count(model.decoder.weights)
    assert decoder == 1_411_344
    assert count(model.trainable_weights) - decoder == 161_824
    norb = HParams(remake=False, normalization="instance")
    model = build_model(NAME, ImageShape(48, 48, 2, 5), 1, norb)
    assert model.count_params() == 151_664  # 151 K


@pytest.mark.parametrize("normalization", ["batch", "instance"])
def test_the_network_equals_numpy(normalization):
    model = make(normalization=normalization)
    move_statistics(model)
    x, _ = example_batch(SMALL, 1, size=2)
    outputs = {k: ops.convert_to_numpy(v) for k, v in model(x).items()}
    hidden = x[keys.IMAGES].astype("float64")
    for convolution, norm in zip(
        model.convolutions, model.normalizations, strict=True
    ):
        kernel, bias = convolution.get_weights()
        windows = np.lib.stride_tricks.sliding_window_view(
            hidden, kernel.shape[:2], axis=(1, 2)
        )
        stride = convolution.strides[0]
        hidden = np.einsum(
            "bhwcyx,yxco->bhwo", windows[:, ::stride, ::stride], kernel
        )
        hidden += bias
        weights = norm.get_weights()
        if normalization == "batch":
            hidden = np.maximum(hidden, 0)
            gamma, beta, mean, variance = weights
        else:
            hidden = np.where(hidden > 0, hidden, 0.3 * hidden)
            gamma, beta = weights
            mean = hidden.mean(axis=(1, 2), keepdims=True)
            variance = hidden.var(axis=(1, 2), keepdims=True)
        hidden = (hidden - mean) / np.sqrt(variance + 1e-3) * gamma + beta

    def copies(layer):
        return [np.stack([w, w]) for w in layer.get_weights()]

    primary = numpy_oracle.depthwise_capsule(
        hidden, *copies(model.primary_capsule), 2
    )
    capsules = numpy_oracle.self_attention_capsule(
        primary, *copies(model.class_capsule)
    )
    np.testing.assert_allclose(outputs[keys.CAPSULES], capsules, atol=1e-5)
    lengths = np.linalg.norm(capsules, axis=-1)
    np.testing.assert_allclose(outputs[keys.LOGITS], lengths, atol=1e-5)


@pytest.mark.parametrize("num_targets", [1, 2])
def test_the_loss_is_the_authors(num_targets):
    model = make(num_targets)
    x, y = example_batch(SMALL, num_targets)
    outputs = {k: ops.convert_to_numpy(v) for k, v in model(x).items()}
    total = float(model.compute_loss(x, y, outputs))
    expected = 0.0
    for example, label in enumerate(y[keys.LOGITS]):
        for length, present in zip(
            outputs[keys.LOGITS][example], label, strict=True
        ):
            expected += present * max(0, 0.9 - length) ** 2
            expected += 0.5 * (1 - present) * max(0, length - 0.1) ** 2
    for name in keys.RECONS_BY_TARGET[:num_targets]:
        squared = (outputs[name].astype("float64") - y[name]) ** 2
        expected += 0.392 * squared.mean(axis=(1, 2, 3)).sum()
    np.testing.assert_allclose(total, expected / len(x[keys.IMAGES]), rtol=1e-5)


def test_the_rate_falls_by_epochs_to_a_floor():
    schedule = EfficientCapsuleModel.make_schedule(HParams(), 10**6)
    rates = [float(schedule(step)) for step in (0, 3749, 3750, 7500, 10**6)]
    np.testing.assert_allclose(
        rates, [5e-4, 5e-4, 5e-4 * 0.97, 5e-4 * 0.97**2, 5e-5], rtol=1e-5
    )
    linear = HParams(schedule="linear")
    schedule = EfficientCapsuleModel.make_schedule(linear, 100)
    assert float(schedule(100)) == 0.0
    assert EfficientCapsuleModel.make_optimizer(HParams()).epsilon == 1e-7


def test_only_training_moves_the_statistics():
    model = make()
    compile_model(model)
    x, y = example_batch(SMALL, 1)

    def statistics():
        return [
            ops.convert_to_numpy(value)
            for layer in model.normalizations
            for value in (layer.moving_mean, layer.moving_variance)
        ]

    first = statistics()
    model.train_on_batch(x, y)
    moved = statistics()
    for before, after in zip(first, moved, strict=True):
        assert (before != after).any()
    images = {keys.IMAGES: x[keys.IMAGES]}
    single = {keys.IMAGES: x[keys.IMAGES][:1]}
    logits = model.predict_on_batch(images)[keys.LOGITS]
    of_batch = ops.convert_to_numpy(model(images, training=True)[keys.LOGITS])
    assert np.abs(logits - of_batch).max() > 1e-4
    # By moving statistics an image does not depend on those beside it.
    after_call = statistics()
    alone = ops.convert_to_numpy(model(single)[keys.LOGITS])
    together = ops.convert_to_numpy(model(images)[keys.LOGITS])
    np.testing.assert_allclose(alone, together[:1], atol=1e-6)
    for before, after in zip(after_call, statistics(), strict=True):
        np.testing.assert_array_equal(before, after)


def test_routing_is_its_attention():
    model = make()
    x, _ = example_batch(SMALL, 1)
    couplings, leaky, _ = model.routing_of(x[keys.IMAGES])
    assert couplings.shape == (1, 4, 1, 1, 3, SMALL.num_classes)
    np.testing.assert_allclose(
        ops.convert_to_numpy(couplings).sum(axis=-1), 1, rtol=1e-5
    )
    assert not leaky
