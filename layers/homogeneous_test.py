import keras
import numpy as np
import pytest
from keras import ops

import layers
from testing import numpy_oracle
from testing.gradients import assert_gradients_close, value_and_gradients

RNG = np.random.default_rng(23)
MOMENTUM = 0.9


def normalize(values, beta, statistics):
    """Normalizes [.., n] over all but the last axis, entry by entry."""
    outputs = np.empty_like(values)
    for n in range(values.shape[-1]):
        if statistics is None:
            mean, variance = values[..., n].mean(), values[..., n].var()
        else:
            mean, variance = statistics[0][n], statistics[1][n]
        outputs[..., n] = (values[..., n] - mean) / np.sqrt(variance + 1e-3)
    return outputs + beta


def capsules_of(image, order):
    """The capsules [I, a] of an image [H, W, C], number by number."""
    height, width, channels = image.shape
    numbers = []
    if order == "xyz":
        for row in range(height):
            for column in range(width):
                numbers += list(image[row, column])
    else:
        for channel in range(channels):
            for row in range(height):
                numbers += list(image[row, :, channel])
    atoms = channels if order == "xyz" else height * width
    count = len(numbers) // atoms
    return np.array([numbers[i * atoms :][:atoms] for i in range(count)])


def class_sums(images, kernel, order):
    atoms, count, num_capsules = kernel.shape
    sums = np.zeros((len(images), num_capsules, atoms))
    for b, image in enumerate(images):
        capsules = capsules_of(image, order)
        assert capsules.shape == (count, atoms)
        for o, d, i in np.ndindex(num_capsules, atoms, count):
            sums[b, o, d] += kernel[d, i, o] * capsules[i, d]
    return sums


def check(arguments, function, oracle):
    """Compares values, and gradients for all arguments, with the oracle."""
    cotangent = RNG.normal(size=oracle(*arguments).shape)
    value, gradients = value_and_gradients(function, arguments, cotangent)
    np.testing.assert_allclose(value, oracle(*arguments), atol=2e-5)
    expected = numpy_oracle.numerical_gradients(
        lambda *copies: np.stack(
            [oracle(*c) for c in zip(*copies, strict=True)]
        ),
        arguments,
        cotangent,
    )
    assert_gradients_close(gradients, expected)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("order", "shape"), [("xyz", (6, 4)), ("zxy", (4, 6))])
def test_capsules_equal_loops(order, shape, training):
    layer = layers.HomogeneousCapsule(3, order, MOMENTUM)
    images = RNG.normal(size=(3, 2, 3, 4))
    layer.build(images.shape)
    assert layer.kernel.shape == (shape[1], shape[0], 3)
    arguments = [
        images,
        *(RNG.normal(size=w.shape) for w in layer.get_weights()[:2]),
    ]
    statistics = RNG.uniform(0.5, 2, (2, shape[1])).astype("float32")

    def call(images, kernel, beta):
        return layer.stateless_call(
            [kernel, beta],
            [ops.convert_to_tensor(s) for s in statistics],
            images,
            training=training,
        )

    def oracle(images, kernel, beta):
        sums = class_sums(images, kernel, order)
        used = None if training else statistics
        return np.maximum(normalize(sums, beta, used), 0)

    check(arguments, lambda *a: call(*a)[0], oracle)
    _, moving = call(*(np.asarray(a, "float32") for a in arguments))
    expected = statistics
    if training:
        sums = class_sums(images, arguments[1], order)
        new = np.stack([sums.mean((0, 1)), sums.var((0, 1))])
        expected = MOMENTUM * statistics + (1 - MOMENTUM) * new
    np.testing.assert_allclose(
        [ops.convert_to_numpy(m) for m in moving], expected, rtol=1e-4
    )


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("merge", ["equal", "random", "ones"])
def test_merged_branches_equal_loops(merge, training):
    layer = layers.MergeBranches(merge, MOMENTUM)
    branches = RNG.uniform(0, 2, size=(3, 4, 5))  # K, B, O
    layer.build([(4, 5)] * 3)
    is_equal = merge == "equal"
    weights = [RNG.normal(size=3)]  # beta
    if not is_equal:
        weights = [np.array([0.1, 2.0, -0.7]), *weights]
    statistics = RNG.uniform(0.5, 2, (2, 3)).astype("float32")

    def function(branches, *weights):
        state = [ops.convert_to_tensor(s) for s in statistics]
        state = [ops.ones(3)] * is_equal + state
        inputs = [branches[k] for k in range(3)]
        return layer.stateless_call(
            list(weights), state, inputs, training=training
        )[0]

    def oracle(branches, *weights):
        scales = np.ones(3) if is_equal else weights[0]
        stacked = np.stack(
            [w * z for w, z in zip(scales, branches, strict=True)], -1
        )
        used = None if training else statistics
        return normalize(stacked, weights[-1], used).sum(axis=-1)

    check([branches, *weights], function, oracle)


def test_only_the_sign_of_a_branch_counts():
    layer = layers.MergeBranches()
    lengths = RNG.uniform(0, 20, size=(8, 10)).astype("float32")
    layer.build([lengths.shape])

    def merged(weight):
        layer.kernel.assign([weight])
        return ops.convert_to_numpy(layer([lengths], training=True))

    np.testing.assert_allclose(merged(2.0), merged(1.0), atol=1e-4)
    np.testing.assert_allclose(merged(-1.0), -merged(1.0), atol=1e-5)


def test_zero_capsules_have_finite_gradients():
    layer = layers.HomogeneousCapsule(3)
    layer.build((2, 2, 2, 4))
    state = [ops.convert_to_tensor(w) for w in layer.get_weights()[2:]]

    def class_lengths(images, kernel, beta):
        outputs = layer.stateless_call([kernel, beta], state, images)[0]
        return layers.lengths(outputs)

    zeros = [np.zeros((2, 2, 2, 4)), np.zeros((4, 4, 3)), np.zeros(4)]
    _, gradients = value_and_gradients(class_lengths, zeros, np.ones((2, 3)))
    assert not any(gradient.any() for gradient in gradients)


def test_a_merging_layer_is_saved(tmp_path):
    inputs = [keras.Input((3,)), keras.Input((3,))]
    merged = layers.MergeBranches("random", MOMENTUM)(inputs)
    model = keras.Model(inputs, merged)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    x = [RNG.normal(size=(2, 3)) for _ in inputs]
    np.testing.assert_array_equal(model.predict(x), loaded.predict(x))
