import functools

import keras
import numpy as np
import pytest
from keras import ops

import layers
from layers.networks.inverted_attention import route_together
from testing import numpy_oracle
from testing.gradients import check, to_numpy, value_and_gradients

RNG = np.random.default_rng(19)


def votes_of(children, kernel, strides):
    """[P, H, W, I, 16], [P, k, k, I, O, 4, 4] -> [P, h, w, K, O, 16]."""
    fields = numpy_oracle.windows(children, kernel.shape[1], strides)
    matrices = fields.reshape(*fields.shape[:6], 1, 4, 4)
    votes = matrices @ kernel[:, None, None]
    return votes.reshape(*fields.shape[:3], -1, kernel.shape[4], 16)


def update(votes, old, scale, shift):
    """Poses [P, h, w, O, 16] and couplings [P, h, w, K, O] of one layer.

    `old` has the poses of the parents, 0 in the first iteration.
    """
    shares = np.exp((votes * old[:, :, :, None]).sum(axis=-1) / 4)
    shares /= shares.sum(axis=-1, keepdims=True)
    s = (shares[..., None] * votes).sum(axis=3)
    s -= s.mean(axis=-1, keepdims=True)
    s /= np.sqrt(s.var(axis=-1, keepdims=True) + 1e-5)
    scale, shift = (w[:, None, None, None] for w in (scale, shift))
    return s * scale + shift, shares


def oracle(inputs, *weights, strides, num_routing):
    """Poses [P, h, w, O, 16] of all layers and, by iteration, couplings."""
    poses, values, history = [], [inputs], []
    for iteration in range(num_routing):
        new_values = [inputs]
        for n, stride in enumerate(strides):
            children = (values if iteration else new_values)[n]
            kernel, *norm = weights[3 * n : 3 * n + 3]
            votes = votes_of(children, kernel, stride)
            old = poses[n] if poses else np.zeros((1,) * 5)
            new, couplings = update(votes, old, *norm)
            new_values.append(new)
        poses, values = new_values[1:], new_values
        history.append(couplings)
    return poses, np.stack(history)


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
    variables = [w for layer in routed for w in layer.weights]
    return routed, [RNG.normal(size=w.shape) * 0.5 for w in variables]


def route(routed, num_routing):
    """A function of inputs and weights to the poses, an example in a row."""

    def function(x, *weights):
        def call(n, *poses):
            own = list(weights[3 * n : 3 * n + 3])
            return routed[n].stateless_call(own, [], *poses)[0]

        functions = [functools.partial(call, n) for n in range(len(routed))]
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
        lambda *arguments: np.concatenate(
            [p.reshape(len(p), -1) for p in oracle(*arguments, **options)[0]], 1
        ),
    )
    _, history = oracle(inputs, *(np.stack([w, w]) for w in weights), **options)
    for n, layer in enumerate(routed):
        layer.set_weights(weights[3 * n : 3 * n + 3])
    poses = route_together(routed, inputs, num_routing)
    pairs = [poses[0][-2:-1], *(old[-2:] for old in poses[:-1])]
    couplings = [routed[-1].couplings(*pair) for pair in pairs]
    couplings = np.stack(to_numpy(couplings))
    expected = history.reshape(couplings.shape)
    np.testing.assert_allclose(couplings, expected, atol=1e-5)


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
    poses = to_numpy(layer(inputs, parents))
    kernel = layer.get_weights()[0]
    assert kernel.std() == pytest.approx(np.sqrt(16 / (4 * 3 * 3 * 2)), 0.05)
    # In blocks, the last one of which is not full.
    layer._block_size = 2
    found = to_numpy(layer(inputs, parents))
    np.testing.assert_allclose(found, poses, atol=1e-5)
    # Another order of the types gives another order of the poses.
    layer.set_weights([kernel[:, :, :, ::-1], *layer.get_weights()[1:]])
    found = to_numpy(layer(inputs, parents[..., ::-1, :]))
    np.testing.assert_allclose(found[..., ::-1, :], poses, atol=1e-5)


def test_parents_of_another_grid_are_refused():
    layer = layers.InvertedAttentionCapsules(2, 2)
    children, parents = np.zeros((1, 3, 3, 2, 16)), np.zeros((1, 1, 1, 2, 16))
    with pytest.raises(ValueError, match="parents"):
        layer(children, parents)
