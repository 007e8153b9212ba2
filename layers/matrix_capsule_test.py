import itertools

import numpy as np
import pytest

import layers
from layers.em_routing import BETA_A_UNIT
from testing import em_oracle, gradients

GEOMETRIES = list(itertools.product([1, 2], ["VALID", "SAME"]))
OPTIONS = [
    {},
    {"normalise": "types"},
    {"normalise": "positions"},
    {"damping": 0.1},
    {"min_variance": 0.01, "final_lambda": 0.05},
]


def build(layer, shape):
    """`gradients.random_capsules`, with small costs of activations."""
    *arguments, beta_a = gradients.random_capsules(layer, shape, scale=0.5)
    return [*arguments, beta_a / 5]


def check(layer, shape, votes_of, options):
    """Compares results and gradients with the oracle's, also assignments."""

    def oracle(poses, activations, kernel, beta_u, beta_a, part=0):
        votes, positions = votes_of(poses, kernel)
        betas = beta_u, beta_a * BETA_A_UNIT
        out, history = em_oracle.layer(
            poses, activations, *betas, votes, positions, **options
        )
        if part:
            return np.array([[*shares.values()] for shares in history])
        return out.reshape(len(poses), *layer._positions, *out.shape[-2:])

    poses, activations, *weights = build(layer, shape)
    function, scale = gradients.poses_and_activations(layer), [*[1] * 16, 10]
    gradients.check(function, [poses, activations], weights, oracle, 5, scale)
    if isinstance(layer, layers.ClassMatrixCapsules):
        layer.set_weights(weights)
        found = layer.assignments([poses, activations.astype("float32")])
        found = gradients.to_numpy(found)
        copies = [np.stack([w] * len(poses)) for w in weights]
        expected = oracle(poses, activations, *copies, part=1).swapaxes(1, 2)
        expected = expected.reshape(found.shape)
        np.testing.assert_allclose(found, expected, atol=1e-4)


# Each `normalise` occurs with each geometry and each number of iterations; the
# other options occur with each number of iterations.
@pytest.mark.parametrize(
    ("num_routing", "strides", "padding", "options"),
    [
        (1 + (option + place) % 3, *geometry, OPTIONS[option])
        for option in range(3)
        for place, geometry in enumerate(GEOMETRIES)
    ]
    + [(2, 2, "VALID", OPTIONS[1]), (2, 1, "SAME", OPTIONS[2])]
    + [
        (num_routing, *GEOMETRIES[(num_routing + option) % 4], OPTIONS[option])
        for option in range(3, len(OPTIONS))
        for num_routing in (1, 2, 3)
    ],
)
def test_convolution_equals_loops(num_routing, strides, padding, options):
    options = {"num_routing": num_routing, **options}
    # With a stride of 2 and VALID the last row has no parent and the third
    # row two.
    size, shape = {1: (2, (1, 3, 3, 1)), 2: (3, (1, 6, 3, 1))}[strides]
    check(
        layers.ConvMatrixCapsules(2, size, strides, padding, **options),
        shape,
        lambda *args: em_oracle.conv_votes(*args, strides, padding),
        options,
    )


@pytest.mark.parametrize("normalise", ["parents", "types", "positions"])
@pytest.mark.parametrize("shape", [(2, 3, 2, 2), (1, 2, 3, 1)])
def test_several_children_and_one_equal_loops(shape, normalise):
    check(  # with a kernel of as many pixels as there are examples
        layers.ConvMatrixCapsules(2, shape[0], normalise=normalise),
        shape,
        lambda *args: em_oracle.conv_votes(*args, 1, "VALID"),
        {"normalise": normalise},
    )


@pytest.mark.parametrize("coordinates", [False, True])
@pytest.mark.parametrize("num_routing", [1, 2, 3])
@pytest.mark.parametrize("options", [OPTIONS[0], *OPTIONS[3:]])
def test_classes_equal_loops(num_routing, options, coordinates):
    options = {"num_routing": num_routing, **options}
    check(
        layers.ClassMatrixCapsules(3, coordinates=coordinates, **options),
        (2, 2, 3, 2),
        lambda *args: em_oracle.class_votes(*args, coordinates),
        options,
    )


@pytest.mark.parametrize("size", [1, 2, 5])
def test_blocks_do_not_change_the_result(size):
    layer = layers.ConvMatrixCapsules(2, 2)
    arguments = build(layer, (5, 3, 3, 2))
    cotangent = np.random.default_rng(4).normal(size=(5, 2, 2, 2, 17))
    found = []
    for layer._block_size in (size, 100):
        value, of_arguments = gradients.value_and_gradients(
            gradients.poses_and_activations(layer), arguments, cotangent
        )
        found.append([value, *of_arguments])
    for actual, expected in zip(*found, strict=True):
        atol = 2e-6 * max(np.abs(expected).max(), 1.0)
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=atol)
