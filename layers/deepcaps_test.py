import itertools

import numpy as np
import pytest
from keras import ops

import layers
from testing import numpy_oracle
from testing.gradients import (
    assert_gradients_close,
    check_layer,
    value_and_gradients,
)

RNG = np.random.default_rng(8)


def convolve(inputs, kernel, strides=1):
    """[P, H, W, c], [P, 3, 3, c, d] -> [P, h, w, d], padded SAME."""
    _, *sides, _ = inputs.shape
    pads = [numpy_oracle.same_padding(n, 3, strides) for n in sides]
    padded = np.pad(inputs, [(0, 0), *pads, (0, 0)])
    grid = [-(-n // strides) for n in sides]
    out = np.zeros((len(inputs), *grid, kernel.shape[-1]))
    for y, x, row, column in itertools.product(*map(range, (*grid, 3, 3))):
        pixels = padded[:, strides * y + row, strides * x + column]
        out[:, y, x] += np.einsum("pc,pcd->pd", pixels, kernel[:, row, column])
    return out


@pytest.mark.parametrize(
    ("strides", "sides"), [(1, (3, 2)), (2, (4, 3)), (2, (1, 5))]
)
def test_convolutional_capsules_equal_loops(strides, sides):
    def oracle(inputs, kernel):
        channels = inputs.reshape(*inputs.shape[:3], 2 * 2)
        s = convolve(channels, kernel, strides)
        capsules = s.reshape(*s.shape[:3], 3, 2)
        for place in np.ndindex(*capsules.shape[1:4]):
            squared = (capsules[:, *place] ** 2).sum(axis=1, keepdims=True)
            capsules[:, *place] *= squared / (1 + squared)
            capsules[:, *place] /= np.sqrt(squared + 1e-7)
        return capsules

    layer = layers.ConvCapsules(3, 2, strides=strides)
    check_layer(layer, RNG.normal(size=(2, *sides, 2, 2)), oracle)


def routed_map(inputs, weights, biases, num_routing, joint, by_map):
    """[P, H, W, I, a], [P, 3, 3, a, O * A], [P, O, A] -> [P, H, W, O, A]."""
    copies, height, width, types, _ = inputs.shape
    _, outputs, atoms = biases.shape
    places = list(itertools.product(range(height), range(width)))
    votes = [
        convolve(inputs[:, :, :, i], weights).reshape(
            copies, height, width, outputs, atoms
        )
        for i in range(types)
    ]
    logits = np.zeros((types, copies, height, width, outputs))
    for _ in range(num_routing):
        s = (
            np.zeros((copies, height, width, outputs, atoms))
            + biases[:, None, None]
        )
        for i in range(types):
            exponentials = np.exp(logits[i])
            for y, x in places:
                total = exponentials if joint else exponentials[:, y, x]
                total = total.reshape(copies, -1).sum(axis=1)
                for o in range(outputs):
                    coupling = exponentials[:, y, x, o] / total
                    s[:, y, x, o] += coupling[:, None] * votes[i][:, y, x, o]
        v = np.zeros_like(s)
        for o in range(outputs):
            if by_map:
                whole = numpy_oracle.squash(s[:, :, :, o].reshape(copies, -1))
                v[:, :, :, o] = whole.reshape(copies, height, width, atoms)
            else:
                for y, x in places:
                    v[:, y, x, o] = numpy_oracle.squash(s[:, y, x, o])
        for i in range(types):
            logits[i] += (votes[i] * v).sum(axis=-1)
    return v


@pytest.mark.parametrize("squash_over", ["atoms", "map"])
@pytest.mark.parametrize("couple_over", ["positions_and_types", "types"])
@pytest.mark.parametrize("num_routing", [1, 2, 3])
def test_routing_over_maps_equals_loops(num_routing, couple_over, squash_over):
    rule = layers.MapRoutingRule(
        couple_over=couple_over, squash_over=squash_over
    )
    options = num_routing, couple_over != "types", squash_over == "map"
    layer = layers.ConvSlimCapsule(
        2, 2, 3, padding="SAME", num_routing=num_routing, rule=rule
    )
    inputs = RNG.normal(size=(2, 3, 2, 2, 2))
    check_layer(layer, inputs, lambda *args: routed_map(*args, *options))
    couplings = ops.convert_to_numpy(layer.couplings(inputs))
    assert couplings.shape == (num_routing, 2, 3, 2, 2, 2)
    axes = (-1,) if couple_over == "types" else (2, 3, 5)
    np.testing.assert_allclose(couplings.sum(axis=axes), 1, rtol=1e-5)


def transpose_convolve(x, kernel, bias, strides):
    """[P, h, w, c], [3, 3, d, c] -> [P, strides * h, strides * w, d]."""
    _, *grid, _ = x.shape
    sides = [strides * (n - 1) + 3 for n in grid]
    out = np.zeros((len(x), *sides, len(bias)))
    for i, j, row, column in itertools.product(*map(range, (*grid, 3, 3))):
        place = strides * i + row, strides * j + column
        out[:, *place] += x[:, i, j] @ kernel[row, column].T
    first = 2 - strides
    height, width = (first + strides * n for n in grid)
    return out[:, first:height, first:width] + bias


@pytest.mark.parametrize("training", [False, True])
def test_decoder_equals_loops(training):
    """Images of 9x10 come from a map of 5x5 by one strided convolution."""
    layer = layers.ConvReconstruction(9, 10, 1)
    layer.build((2, 3, 4))
    weights = [RNG.uniform(-0.5, 0.5, w.shape) for w in layer.weights]
    names = [w.name for w in layer.weights]
    weights[names.index("moving_variance")] += 1
    layer.set_weights(weights)
    labels = np.array([2, 0], "int32")
    kernel, bias, gamma, beta, mean, variance, *rest = weights

    def oracle(atoms):
        x = np.maximum(atoms @ kernel + bias, 0).reshape(-1, 5, 5, 16)
        statistics = mean, variance
        if training:
            statistics = x.mean(axis=(0, 1, 2)), x.var(axis=(0, 1, 2))
        deviation = np.sqrt(statistics[1] + 0.001)
        x = (x - statistics[0]) / deviation * gamma + beta
        for number, strides in enumerate((1, 2, 1)):
            arrays = rest[2 * number : 2 * number + 2]
            x = transpose_convolve(x, *arrays, strides)
        return np.maximum(x, 0)[:, :9]

    capsules = RNG.normal(size=(2, 3, 4))
    expected = oracle(capsules[[0, 1], labels])
    cotangent = RNG.normal(size=expected.shape)
    value, (gradient,) = value_and_gradients(
        lambda x: layer(x, labels, training=training), [capsules], cotangent
    )
    np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-4)
    if training:
        moved = layer.get_weights()[names.index("moving_mean")]
        x = np.maximum(capsules[[0, 1], labels] @ kernel + bias, 0)
        batch_mean = x.reshape(-1, 16).mean(axis=0)
        np.testing.assert_allclose(moved, 0.8 * mean + 0.2 * batch_mean, 1e-4)
        return
    of_atoms = [
        numpy_oracle.numerical_gradients(oracle, [atoms], c)[0]
        for atoms, c in zip(capsules[[0, 1], labels], cotangent, strict=True)
    ]
    of_capsules = np.zeros_like(capsules)
    of_capsules[[0, 1], labels] = of_atoms
    assert_gradients_close([gradient], [of_capsules])


def test_deep_capsules_do_not_vanish():
    x = RNG.normal(size=(4, 8, 8, 16, 1)).astype("float32")
    for _ in range(5):
        layer = layers.ConvCapsules(8, 8)
        x = layer(x)
        limit = np.sqrt(3 / np.sqrt(layer.count_params()))
        kernel = layer.get_weights()[0]
        assert np.abs(kernel).max() == pytest.approx(limit, rel=0.01)
        assert kernel.std() == pytest.approx(limit / np.sqrt(3), rel=0.05)
    assert ops.mean(layers.lengths(x)) > 0.05
