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
    """A layer's results, and gradients, for each image of a batch."""

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


GEOMETRIES = list(itertools.product([1, 2], ["VALID", "SAME"]))


# Each way to normalise meets each geometry and each number of iterations, and
# each of these the other; the numbers meet each number of iterations.
@pytest.mark.parametrize(
    ("num_routing", "strides", "padding", "options"),
    [
        (1 + (option + place) % 3, *geometry, OPTIONS[option])
        for option in range(3)
        for place, geometry in enumerate(GEOMETRIES)
    ]
    # Of one iteration nothing was assigned.
    + [(2, 2, "VALID", OPTIONS[1]), (2, 1, "SAME", OPTIONS[2])]
    + [
        (num_routing, *GEOMETRIES[(num_routing + option) % 4], OPTIONS[option])
        for option in range(3, len(OPTIONS))
        for num_routing in (1, 2, 3)
    ],
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


@pytest.mark.parametrize("normalise", ["parents", "types", "positions"])
def test_images_and_types_of_children_are_not_mixed_up(normalise):
    options = {"num_routing": 2, "normalise": normalise}
    shape = (2, 3, 2, 2)
    layer = build(layers.ConvMatrixCapsules(2, 2, **options), shape)
    check(
        layer,
        numbers(layer, shape),
        lambda poses, kernel: em_oracle.conv_votes(poses, kernel, 1, "VALID"),
        options,
    )


@pytest.mark.parametrize("normalise", ["parents", "types", "positions"])
@pytest.mark.parametrize("active", [0.0, 1.0])
def test_parents_of_one_child_and_of_none_that_is_active(active, normalise):
    options = {"normalise": normalise}
    shape = (1, 2, 3, 1)
    layer = build(layers.ConvMatrixCapsules(2, 1, **options), shape)
    arguments = numbers(layer, shape)
    arguments[1][:, :, 1] = active
    check(
        layer,
        arguments,
        lambda poses, kernel: em_oracle.conv_votes(poses, kernel, 1, "VALID"),
        options,
        # Central differences would make activations negative.
        gradients=False,
    )


@pytest.mark.parametrize(
    ("num_routing", "options", "coordinates"),
    [
        (num_routing, options, (place + num_routing) % 2 == 0)
        for num_routing in (1, 2, 3)
        for place, options in enumerate(
            o for o in OPTIONS if "normalise" not in o
        )
    ],
)
def test_classes_equal_loops(num_routing, options, coordinates):
    options = {"num_routing": num_routing, **options}
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


@pytest.mark.parametrize("normalise", ["parents", "types", "positions"])
def test_what_the_assignments_sum_to(normalise):
    shape = (2, 5, 4, 2)
    layer = build(layers.ConvMatrixCapsules(3, 3, normalise=normalise), shape)
    poses, activations, *_ = numbers(layer, shape)
    found = ops.convert_to_numpy(
        layer.assignments([poses, activations.astype("float32")])
    )
    assert found.shape == (3, 2, 6, 18, 3)
    by_entry = found.reshape(3, 2, 3, 2, 3, 3, 2, 3)
    of_child = np.zeros((3, 2, 5, 4, 2, 3))
    for y, x, ky, kx in np.ndindex(3, 2, 3, 3):
        of_child[:, :, y + ky, x + kx] += by_entry[:, :, y, x, ky, kx]
    if normalise == "parents":
        np.testing.assert_allclose(of_child.sum(axis=-1), 1, rtol=1e-5)
    elif normalise == "types":
        np.testing.assert_allclose(found.sum(axis=-1), 1, rtol=1e-5)
    else:
        np.testing.assert_allclose(of_child[1:], 1, rtol=1e-5)


def test_assignments_equal_loops():
    shape = (1, 2, 3, 2)
    layer = build(layers.ClassMatrixCapsules(3), shape)
    poses, activations, *weights = numbers(layer, shape)
    layer.set_weights(weights)
    found = ops.convert_to_numpy(
        layer.assignments([poses, activations.astype("float32")])
    )
    votes, positions = em_oracle.class_votes(poses, weights[0][None], True)
    betas = weights[1][None], weights[2][None] * BETA_A_UNIT
    _, history = em_oracle.layer(poses, activations, *betas, votes, positions)
    assert found.shape == (3, 1, 1, 12, 3)
    for iteration, shares in enumerate(history):
        for (child, (_, kind)), share in shares.items():
            number = np.ravel_multi_index(child, shape[1:])
            np.testing.assert_allclose(
                found[iteration, 0, 0, number, kind], share[0], atol=1e-4
            )


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_batch_by_blocks_is_the_same(size):
    shape = (5, 3, 3, 2)
    layer = build(layers.ConvMatrixCapsules(2, 2), shape)
    arguments = numbers(layer, shape)
    cotangent = np.random.default_rng(4).normal(size=(5, 2, 2, 2, 17))

    def ours(poses, activations, *weights):
        return as_one(
            layer.stateless_call(list(weights), [], (poses, activations))[0]
        )

    layer._block_size = 100
    whole = value_and_gradients(ours, arguments, cotangent)
    layer._block_size = size
    value, gradients = value_and_gradients(ours, arguments, cotangent)
    for found, expected in zip(
        (value, *gradients), (whole[0], *whole[1]), strict=True
    ):
        # Sums of other orders are rounded as their largest parts are.
        scale = max(np.abs(expected).max(), 1.0)
        np.testing.assert_allclose(
            found, expected, rtol=1e-4, atol=2e-6 * scale
        )


def test_children_without_parents_count_for_nothing():
    shape = (1, 4, 4, 2)
    layer = build(layers.ConvMatrixCapsules(2, 3, strides=2), shape)
    poses, activations, *weights = numbers(layer, shape)
    layer.set_weights(weights)
    found = layer([poses, activations])
    poses[:, 3], poses[:, :, 3] = 1e3, -1e3
    moved = layer([poses, activations])
    for a, b in zip(found, moved, strict=True):
        np.testing.assert_array_equal(
            ops.convert_to_numpy(a), ops.convert_to_numpy(b)
        )


def test_primary_capsules_are_linear_and_sigmoid():
    layer = layers.PrimaryMatrixCapsules(3)
    generator = np.random.default_rng(6)
    inputs = generator.normal(size=(2, 3, 4, 5)).astype("float32")
    layer.build(inputs.shape)
    weights = [generator.normal(size=w.shape) for w in layer.weights]
    layer.set_weights(weights)
    poses, activations = layer(inputs)
    pose_kernel, pose_biases, kernel, biases = weights
    np.testing.assert_allclose(
        ops.convert_to_numpy(poses),
        (inputs @ pose_kernel + pose_biases).reshape(2, 3, 4, 3, 16),
        atol=1e-5,
    )
    np.testing.assert_allclose(
        ops.convert_to_numpy(activations),
        1 / (1 + np.exp(-(inputs @ kernel + biases))),
        atol=1e-5,
    )


@pytest.mark.parametrize("stddev", [0.3, 2.0])
def test_initial_kernels_are_cut_at_two_deviations(stddev):
    for layer in (
        layers.ConvMatrixCapsules(8, 3, kernel_stddev=stddev),
        layers.ClassMatrixCapsules(64, kernel_stddev=stddev),
    ):
        build(layer, (1, 3, 3, 8))
        kernel = ops.convert_to_numpy(layer.kernel)
        assert np.abs(kernel).max() <= 2 * stddev
        # Of a normal distribution that is cut there, 0.88 is left.
        assert kernel.std() == pytest.approx(0.88 * stddev, rel=0.05)


@pytest.mark.parametrize("size", [2, 4])
def test_kernels_larger_than_the_grid_are_errors(size):
    with pytest.raises(ValueError, match="larger"):
        build(layers.ConvMatrixCapsules(2, 5), (1, size, 6, 3))
