import keras
import numpy as np
import pytest
from keras import ops

import layers
from layers.networks.inverted_attention import route_together
from testing import em_oracle
from testing.gradients import check, to_numpy, value_and_gradients

RNG = np.random.default_rng(19)


def update(votes, old, scale, shift):
    """Poses and couplings of one layer by loops over the edges of a graph.

    Votes are a dict as in em_oracle.py, of [P, 16]; `old` is a dict of the
    poses [P, 16] of the parents, empty in the first iteration.
    """
    parents = sorted({parent for _, parent in votes})
    types = 1 + max(kind for _, kind in parents)
    couplings = {}
    for child, (position, kind) in votes:
        edges = [(child, (position, o)) for o in range(types)]
        numbers = {
            e[1]: np.exp((votes[e] * old[e[1]]).sum(axis=1) / 4) if old else 1
            for e in edges
        }
        parent = (position, kind)
        share = numbers[parent] / sum(numbers.values())
        couplings[child, parent] = share * np.ones(len(scale))
    poses = {}
    for parent in parents:
        edges = [edge for edge in votes if edge[1] == parent]
        s = sum(couplings[edge][:, None] * votes[edge] for edge in edges)
        mean = s.mean(axis=1, keepdims=True)
        deviation = np.sqrt(s.var(axis=1, keepdims=True) + 1e-5)
        poses[parent] = (s - mean) / deviation * scale + shift
    return poses, couplings


def oracle(inputs, *weights, strides, num_routing):
    """Poses [P, h, w, O, 16] of all layers and, by iteration, couplings."""
    num_layers = len(strides)

    def as_array(poses):
        (row, column), kind = max(poses)
        array = np.zeros((len(inputs), row + 1, column + 1, kind + 1, 16))
        for ((y, x), o), pose in poses.items():
            array[:, y, x, o] = pose
        return array

    poses, values, history = [{}] * num_layers, [inputs], []
    for iteration in range(num_routing):
        updated, new_values = [], [inputs]
        for n in range(num_layers):
            children = (values if iteration else new_values)[n]
            kernel, *norm = weights[3 * n : 3 * n + 3]
            votes, _ = em_oracle.conv_votes(
                children, kernel, strides[n], "VALID"
            )
            new, couplings = update(votes, poses[n], *norm)
            updated.append(new)
            new_values.append(as_array(new))
        poses, values = updated, new_values
        history.append(couplings)
    return values[1:], history


def joined(arrays):
    """All numbers of an example in one row."""
    rows = [each.reshape(len(each), -1) for each in arrays]
    return np.concatenate(rows, axis=1)


# The shape of the inputs, sizes of kernels, strides.
TWO = ((3, 3, 1, 16), (2, None), (1, 1))
STRIDED = ((4, 4, 1, 16), (2, 2), (2, 1))
SINGLE_CHILD = ((1, 1, 1, 16), (1,), (1,))


def build(shape, sizes, strides, **options):
    """Layers of two types, and random weights of each."""
    routed = [
        layers.InvertedAttentionCapsules(2, size, stride, **options)
        for size, stride in zip(sizes, strides, strict=True)
    ]
    shape = (None, *shape)
    for layer in routed:
        layer.build(shape)
        *_, types, _ = shape = layer.compute_output_shape(shape)
        assert types == 2
    weights = [
        RNG.normal(size=w.shape) * 0.5
        for layer in routed
        for w in layer.weights
    ]
    return routed, weights


def route(routed, num_routing):
    """A function of inputs and weights to the poses, an example in a row."""

    def with_weights(layer, weights):
        return lambda *poses: layer.stateless_call(weights, [], *poses)[0]

    def function(x, *weights):
        functions = [
            with_weights(layer, list(weights[3 * n : 3 * n + 3]))
            for n, layer in enumerate(routed)
        ]
        history = route_together(functions, x, num_routing)
        rows = [ops.reshape(each, (len(x), -1)) for each in history[-1][1:]]
        return ops.concatenate(rows, axis=1)

    return function


@pytest.mark.parametrize(
    ("case", "num_routing"),
    [(TWO, 1), (TWO, 2), (STRIDED, 2), (TWO, 3), (SINGLE_CHILD, 2)],
)
def test_poses_couplings_and_gradients_equal_loops(case, num_routing):
    shape, _, strides = case
    routed, weights = build(*case)
    inputs = RNG.normal(size=(2, *shape)).astype("float32")
    options = {"strides": strides, "num_routing": num_routing}
    check(
        route(routed, num_routing),
        [inputs],
        weights,
        lambda *arguments: joined(oracle(*arguments, **options)[0]),
    )
    _, history = oracle(inputs, *(np.stack([w, w]) for w in weights), **options)
    for n, layer in enumerate(routed):
        layer.set_weights(weights[3 * n : 3 * n + 3])
    poses = route_together(routed, inputs, num_routing)
    pairs = [poses[0][-2:-1], *(old[-2:] for old in poses[:-1])]
    couplings = to_numpy(
        ops.stack([routed[-1].couplings(*pair) for pair in pairs])
    )
    np.testing.assert_allclose(couplings.sum(axis=-1), 1, atol=1e-6)
    for shares, ours in zip(history, couplings, strict=True):
        positions = sorted({position for _, (position, _) in shares})
        for (child, (position, kind)), share in shares.items():
            children = sorted({i for i, (at, _) in shares if at == position})
            place = positions.index(position), children.index(child), kind
            np.testing.assert_allclose(
                ours[(slice(None), *place)], share, atol=1e-5
            )


@pytest.mark.parametrize("size", [0.0, 1e-20, 1e4])
def test_zero_and_distant_votes_are_finite(size):
    routed, weights = build(*TWO)
    weights[2], weights[5] = np.zeros((2, 16))
    inputs = size * (1 + RNG.normal(size=(2, *TWO[0])))
    value, _ = value_and_gradients(
        route(routed, 3), [inputs, *weights], RNG.normal(size=(2, 5 * 32))
    )
    if size == 0:
        np.testing.assert_array_equal(value, 0)


def test_blocks_types_and_initial_weights():
    keras.utils.set_random_seed(3)
    layer = layers.InvertedAttentionCapsules(16, 3)
    inputs = RNG.normal(size=(5, 4, 4, 2, 16)).astype("float32")
    parents = RNG.normal(size=(5, 2, 2, 16, 16)).astype("float32")
    poses = layer(inputs, parents)
    kernel = layer.get_weights()[0]
    np.testing.assert_allclose(
        kernel.std(), np.sqrt(16 / (4 * 3 * 3 * 2)), rtol=0.05
    )
    # In blocks, the last one of which is not full.
    layer._block_size = 2
    np.testing.assert_allclose(
        *map(to_numpy, (layer(inputs, parents), poses)), atol=1e-5
    )
    # Another order of the types gives another order of the poses.
    layer.set_weights([kernel[:, :, :, ::-1], *layer.get_weights()[1:]])
    np.testing.assert_allclose(
        to_numpy(layer(inputs, parents[..., ::-1, :]))[..., ::-1, :],
        to_numpy(poses),
        atol=1e-5,
    )


def test_parents_of_another_grid_are_refused():
    layer = layers.InvertedAttentionCapsules(2, 2)
    children, parents = np.zeros((1, 3, 3, 2, 16)), np.zeros((1, 1, 1, 2, 16))
    with pytest.raises(ValueError, match="parents"):
        layer(children, parents)
