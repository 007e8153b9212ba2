import itertools

import numpy as np
import pytest
from keras import ops

import layers
from layers.matrix_capsule import BETA_A_UNIT
from testing import em_oracle, numpy_oracle
from testing.gradients import value_and_gradients

OPTIONS = [
    {},
    {"normalise": "types"},
    {"normalise": "positions"},
    {"damping": 0.1},
    {"min_variance": 0.01, "final_lambda": 0.05},
]


def as_one(outputs):
    """Poses [..., 16] and activations [...] to [..., 17]."""
    poses, activations = outputs
    return ops.concatenate([poses, ops.expand_dims(activations, -1)], axis=-1)


def numbers(layer, shape, seed=3):
    """Poses, activations and the three weights of a built layer."""
    generator = np.random.default_rng(seed)
    return [
        generator.normal(size=(*shape, 16)) * 0.5,
        generator.uniform(size=shape),
        generator.normal(size=layer.kernel.shape) * 0.5,
        generator.normal(size=layer.beta_u.shape),
        generator.normal(size=layer.beta_a.shape) * 0.1,
    ]


def build(layer, shape):
    layer.build([(*shape, 16), shape])
    return layer


def check(layer, arguments, votes_of, options, gradients=True):
    """A layer's results, and gradients, for each of two images of a batch."""

    def oracle(poses, activations, kernel, beta_u, beta_a):
        votes, positions = votes_of(poses, kernel)
        out, _ = em_oracle.layer(
            poses,
            activations,
            beta_u,
            beta_a * BETA_A_UNIT,
            votes,
            positions,
            **options,
        )
        return out.reshape(len(poses), *shape[1:])

    def ours(poses, activations, *weights):
        outputs, _ = layer.stateless_call(
            list(weights), [], (poses, activations)
        )
        return as_one(outputs)

    images = len(arguments[0])
    positions = layer._positions
    shape = (images, *positions, layer.num_capsules, 17)
    cotangent = np.random.default_rng(5).normal(size=shape)
    cotangent[..., 16] *= 10
    value, found = value_and_gradients(ours, arguments, cotangent)
    assert value.shape == shape
    copies = [np.broadcast_to(a, (images, *a.shape)) for a in arguments[2:]]
    expected = oracle(*arguments[:2], *copies)
    np.testing.assert_allclose(value, expected, rtol=1e-3, atol=1e-4)
    assert np.isfinite(expected).all()
    for gradient in found:
        assert np.isfinite(gradient).all()
    if not gradients:
        return
    by_image = [
        numpy_oracle.numerical_gradients(
            oracle,
            [arguments[0][i], arguments[1][i], *arguments[2:]],
            cotangent[i],
        )
        for i in range(images)
    ]
    by_argument = list(zip(*by_image, strict=True))
    expected = [
        *(np.stack(g) for g in by_argument[:2]),
        *(sum(g) for g in by_argument[2:]),
    ]
    for ours_gradient, oracle_gradient in zip(found, expected, strict=True):
        scale = np.abs(oracle_gradient).max()
        np.testing.assert_allclose(
            ours_gradient, oracle_gradient, rtol=1e-3, atol=1e-4 * scale + 1e-9
        )


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("num_routing", [1, 2, 3])
@pytest.mark.parametrize(
    ("strides", "padding"),
    list(itertools.product([1, 2], ["VALID", "SAME"])),
)
def test_convolution_equals_loops(num_routing, strides, padding, options):
    options = {"num_routing": num_routing, **options}
    # With a stride of 2 and VALID the last row has no parent, and the third
    # is seen by two positions.
    size, shape = {1: (2, (1, 3, 3, 1)), 2: (3, (1, 6, 3, 1))}[strides]
    layer = build(
        layers.ConvMatrixCapsules(2, size, strides, padding, **options), shape
    )
    check(
        layer,
        numbers(layer, shape),
        lambda poses, kernel: em_oracle.conv_votes(
            poses, kernel, strides, padding
        ),
        options,
    )


@pytest.mark.parametrize("coordinates", [True, False])
@pytest.mark.parametrize("damping", [0.0, 0.1])
@pytest.mark.parametrize("num_routing", [1, 2, 3])
def test_classes_equal_loops(num_routing, damping, coordinates):
    options = {"num_routing": num_routing, "damping": damping}
    shape = (2, 2, 3, 2)
    layer = build(
        layers.ClassMatrixCapsules(3, coordinates=coordinates, **options),
        shape,
    )
    check(
        layer,
        numbers(layer, shape),
        lambda poses, kernel: em_oracle.class_votes(poses, kernel, coordinates),
        options,
    )
