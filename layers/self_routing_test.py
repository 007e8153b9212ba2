import numpy as np
import pytest
from keras import ops

import layers
from testing import numpy_oracle
from testing.gradients import assert_gradients_close, value_and_gradients


def route(children, weights, biases, pose_weights):
    """Activations [P, O] and poses [P, O, d] of one position, child by child.

    Children are a list of poses [P, a] and activations [P], in P copies.
    """
    total, sums, poses = 0, 0, 0
    for i, (pose, activation) in enumerate(children):
        logits = np.einsum("pa,pao->po", pose, weights[:, i]) + biases[:, i]
        logits -= logits.max(axis=1, keepdims=True)
        share = activation[:, None] * numpy_oracle.softmax(logits, leaky=False)
        vote = np.einsum("pa,pax->px", pose, pose_weights[:, i])
        vote = vote.reshape(*share.shape, -1)
        total = total + activation[:, None]
        sums, poses = sums + share, poses + share[..., None] * vote
    return sums / (total + 1e-12), poses / (sums[..., None] + 1e-12)


def oracle(layer):
    """A function of P copies; returns poses and activations, [..., d + 1]."""

    def function(poses, activations, weights, biases, pose_weights=None):
        if pose_weights is None:
            pose_weights = np.zeros_like(weights)
        _, *grid, types, _ = poses.shape
        sizes = [layer.kernel_size or length for length in grid]
        lengths = list(zip(grid, sizes, strict=True))
        if layer.padding == "SAME":
            positions = [-(-length // layer.strides) for length in grid]
            first = [
                numpy_oracle.same_padding(*axis, layer.strides)[0]
                for axis in lengths
            ]
        else:
            positions = [(n - k) // layer.strides + 1 for n, k in lengths]
            first = [0, 0]
        results = []
        for position in np.ndindex(*positions):
            children = []
            for place in np.ndindex(*sizes):
                at = np.array(position) * layer.strides + place - first
                inside = (at >= 0).all() and (at < grid).all()
                y, x = at if inside else (0, 0)
                children += [
                    (
                        inside * poses[:, y, x, kind],
                        inside * activations[:, y, x, kind],
                    )
                    for kind in range(types)
                ]
            parents = route(children, weights, biases, pose_weights)
            results.append(
                np.concatenate([parents[1], parents[0][..., None]], axis=-1)
            )
        stacked = np.stack(results, axis=1)
        stacked = stacked.reshape(len(poses), *positions, *stacked.shape[2:])
        if layer.kernel_size is None:
            stacked = stacked[:, 0, 0]
        return stacked if layer.num_atoms else stacked[..., -1]

    return function


def call(layer):
    """A function of poses, activations and weights, as `oracle` returns it."""

    def function(poses, activations, *weights):
        outputs, _ = layer.stateless_call(
            list(weights), [], (poses, activations)
        )
        if not layer.num_atoms:
            return outputs
        return ops.concatenate([outputs[0], outputs[1][..., None]], axis=-1)

    return function


def build(layer, shape, atoms=2):
    """Poses, activations of this shape, and weights; all are random."""
    layer.build([(*shape, atoms), shape])
    rng = np.random.default_rng(3)
    weights = [rng.normal(size=w.shape) for w in layer.weights]
    return [rng.normal(size=(*shape, atoms)), rng.uniform(size=shape), *weights]


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (layers.SelfRoutingCapsules(2, 3, 2), (2, 3, 2, 2)),
        (layers.SelfRoutingCapsules(2, 2, 2, 2, "valid"), (1, 5, 4, 1)),
        (layers.SelfRoutingCapsules(3, 1, 3, 1, "same"), (1, 2, 3, 1)),
        (layers.SelfRoutingCapsules(2, 2, 3, 2, "SAME"), (1, 4, 3, 2)),
        (layers.SelfRoutingCapsules(1, 2, 1), (1, 2, 1, 1)),
        (layers.SelfRoutingCapsules(3), (2, 2, 3, 2)),
        (layers.SelfRoutingCapsules(2, 3), (1, 2, 1, 2)),
    ],
)
def test_layers_equal_loops(layer, shape):
    arguments = build(layer, shape)
    expected = oracle(layer)(
        *arguments[:2],
        *[np.broadcast_to(a, (shape[0], *a.shape)) for a in arguments[2:]],
    )
    cotangent = np.random.default_rng(5).normal(size=expected.shape)
    value, gradients = value_and_gradients(call(layer), arguments, cotangent)
    np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-5)
    by_image = [
        numpy_oracle.numerical_gradients(
            oracle(layer), [poses, activations, *arguments[2:]], c
        )
        for poses, activations, c in zip(*arguments[:2], cotangent, strict=True)
    ]
    by_argument = list(zip(*by_image, strict=True))
    expected = [np.stack(g) for g in by_argument[:2]]
    expected += [sum(g) for g in by_argument[2:]]
    # Those of weights that change nothing, as of a single parent, are zero.
    assert_gradients_close(
        [g + 1 for g in gradients], [g + 1 for g in expected]
    )
    layer.set_weights(arguments[2:])
    children = [a.astype("float32") for a in arguments[:2]]
    couplings = ops.convert_to_numpy(layer.couplings(children))
    np.testing.assert_allclose(couplings.sum(axis=-1), 1, rtol=1e-5)
    parents = value[..., -1] if layer.num_atoms else value
    np.testing.assert_allclose(parents.sum(axis=-1), 1, rtol=1e-5)


@pytest.mark.parametrize("scale", [0.0, 1e-6, 1e6])
@pytest.mark.parametrize("activation", [0.0, 1e-8, 1.0])
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (1, 2, 1, 2)])
def test_distant_and_inactive_children_are_finite(scale, activation, shape):
    layer = layers.SelfRoutingCapsules(2, 2)
    poses, _, *weights = build(layer, shape)
    arguments = [scale * poses, np.full(shape, activation), *weights]
    expected = oracle(layer)(*arguments[:2], *[w[None] for w in weights])
    cotangent = np.ones(expected.shape)
    value, gradients = value_and_gradients(call(layer), arguments, cotangent)
    np.testing.assert_allclose(value, expected, rtol=1e-3, atol=1e-5)
    assert all(np.isfinite(gradient).all() for gradient in gradients)
