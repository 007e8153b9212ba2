import numpy as np
import pytest
import scipy.special
from keras import ops

import layers
from layers.vb_routing import digamma
from testing import em_oracle, numpy_oracle, vb_oracle
from testing.gradients import value_and_gradients


def build(layer, shape):
    """Random poses, activations and weights."""
    layer.build([(*shape, 16), shape])
    rng = np.random.default_rng(3)
    return [
        rng.normal(size=(*shape, 16)),
        rng.uniform(size=shape),
        rng.normal(size=layer.kernel.shape) * 0.5,
    ]


def call(layer):
    """A function of poses, activations and weights; returns [..., 17]."""
    state = [ops.convert_to_tensor(v) for v in layer.non_trainable_variables]

    def function(poses, activations, kernel):
        (poses, activations), _ = layer.stateless_call(
            [kernel], state, (poses, activations), training=True
        )
        return ops.concatenate([poses, activations[..., None]], axis=-1)

    return function


def check(layer, shape, votes_of):
    """Compares results and gradients with the oracle's."""
    arguments = build(layer, shape)
    grid = tuple(layer._positions)
    shape = (shape[0], *grid, layer.num_capsules, 17)

    def oracle(*arguments):
        types, num_routing = layer.num_capsules, layer.options.num_routing
        out = vb_oracle.layer(*arguments, votes_of, types, num_routing)
        return out.reshape(-1, *shape)

    cotangent = np.random.default_rng(5).normal(size=shape)
    value, ours = value_and_gradients(call(layer), arguments, cotangent)
    expected = oracle(*(a[None] for a in arguments))[0]
    np.testing.assert_allclose(value, expected, rtol=1e-3, atol=1e-4)
    gradients = numpy_oracle.numerical_gradients(oracle, arguments, cotangent)
    for actual, wanted in zip(ours, gradients, strict=True):
        atol = 1e-3 * np.abs(wanted).max()
        np.testing.assert_allclose(actual, wanted, rtol=1e-3, atol=atol)


@pytest.mark.parametrize(
    ("num_routing", "strides", "padding"),
    [(1, 2, "SAME"), (2, 1, "VALID"), (3, 1, "SAME"), (3, 2, "VALID")],
)
def test_convolution_equals_loops(num_routing, strides, padding):
    size, shape = {1: (2, (2, 3, 2, 1)), 2: (3, (2, 5, 3, 1))}[strides]
    check(
        layers.ConvVBCapsules(2, size, strides, padding, num_routing),
        shape,
        lambda *args: em_oracle.conv_votes(*args, strides, padding),
    )


@pytest.mark.parametrize(
    ("num_routing", "coordinates"), [(1, False), (2, True), (3, True)]
)
def test_classes_equal_loops(num_routing, coordinates):
    shape = (3, 2, 2, 1)

    def votes_of(poses, kernel):
        votes, grid = em_oracle.class_votes(poses, kernel, False)
        for ((row, column, _), _), vote in votes.items():
            vote[:, 3] += (row + 1) / 20 * coordinates
            vote[:, 7] += (column + 1) / 20 * coordinates
        return votes, grid

    layer = layers.ClassVBCapsules(2, num_routing, coordinates=coordinates)
    check(layer, shape, votes_of)


@pytest.mark.parametrize(
    ("size", "scale", "active"), [(1, 1.0, 1.0), (2, 100.0, 1.0), (2, 1.0, 0.0)]
)
def test_extreme_children_give_finite_values_and_gradients(size, scale, active):
    layer = layers.ConvVBCapsules(2, size)
    poses, activations, kernel = build(layer, (2, 2, 2, 1))
    arguments = [scale * poses, active * activations, kernel]
    cotangent = np.ones((2, *layer._positions, 2, 17))
    value, gradients = value_and_gradients(call(layer), arguments, cotangent)
    for array in (value, *gradients):
        assert np.isfinite(array).all()


def test_digamma():
    x = np.geomspace(1, 1e4, 300, dtype="float32")
    ours = ops.convert_to_numpy(digamma(ops.convert_to_tensor(x)))
    expected = scipy.special.digamma(x.astype("float64"))
    np.testing.assert_allclose(ours, expected, atol=1.5e-6)
