import numpy as np
import pytest

import layers
from testing import gradients, numpy_oracle


def route(poses, activations, weights, biases, pose_weights):
    """[P, K, a], [P, K] -> activations [P, O] and poses [P, O, d]."""
    logits = np.einsum("pka,pkao->pko", poses, weights) + biases
    shares = np.exp(logits - logits.max(axis=2, keepdims=True))
    shares *= activations[..., None] / shares.sum(axis=2, keepdims=True)
    votes = np.einsum("pka,pkax->pkx", poses, pose_weights)
    votes = votes.reshape(*shares.shape, -1)
    sums, total = shares.sum(axis=1), activations.sum(axis=1)[:, None]
    poses = (shares[..., None] * votes).sum(axis=1)
    return sums / (total + 1e-12), poses / (sums[..., None] + 1e-12)


def oracle(layer):
    """A function of P copies; returns poses and activations, [..., d + 1]."""

    def function(poses, activations, weights, biases, *of_poses):
        rule = layer.kernel_size, layer.strides, layer.padding
        poses = numpy_oracle.windows(poses, *rule)
        grid, atoms = poses.shape[:3], poses.shape[-1]
        poses = poses.reshape(np.prod(grid), -1, atoms)
        activations = numpy_oracle.windows(activations, *rule)
        activations = activations.reshape(len(poses), -1)
        pose_weights, *norm = of_poses or [np.zeros_like(weights)]
        every = weights, biases, pose_weights, *norm
        every = [np.repeat(w, np.prod(grid[1:]), axis=0) for w in every]
        parents, votes = route(poses, activations, *every[:3])
        parents = parents[..., None]
        if norm:
            scale, shift = (w.reshape(votes.shape) for w in every[3:])
            # The initial moving mean is 0, the variance 1.
            votes = votes / np.sqrt(1 + 1e-5) * scale + shift
        result = np.concatenate([votes if norm else parents, parents], axis=-1)
        grid = grid if layer.kernel_size else grid[:1]
        return result.reshape(*grid, *result.shape[1:])

    return function


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (layers.SelfRoutingCapsules(2, 3, 2), (2, 3, 2, 2)),
        (layers.SelfRoutingCapsules(2, 2, 2, 2, "valid"), (1, 5, 4, 1)),
        (layers.SelfRoutingCapsules(3, 1, 3, 1, "same"), (1, 2, 3, 1)),
        (layers.SelfRoutingCapsules(2, 2, 3, 2, "SAME"), (1, 4, 3, 2)),
        (layers.SelfRoutingCapsules(1, 2, 1), (1, 2, 1, 1)),
        (layers.SelfRoutingCapsules(3), (2, 2, 3, 2)),
        (layers.SelfRoutingCapsules(2, 3), (2, 2, 1, 2)),
    ],
)
def test_layers_equal_loops(layer, shape):
    arguments = gradients.random_capsules(layer, shape, 2)
    function = gradients.poses_and_activations(layer, training=False)
    gradients.check(function, arguments[:2], arguments[2:], oracle(layer))
    for variable, w in zip(layer.trainable_weights, arguments[2:], strict=True):
        variable.assign(w)
    children = [a.astype("float32") for a in arguments[:2]]
    couplings = gradients.to_numpy(layer.couplings(children))
    np.testing.assert_allclose(couplings.sum(axis=-1), 1, rtol=1e-5)
    if layer.num_atoms:  # each channel over all positions is normalized
        poses, _ = gradients.to_numpy(layer(children, training=True))
        mean = poses.mean(axis=tuple(range(poses.ndim - 2)))
        shift = arguments[-1].reshape(mean.shape)
        np.testing.assert_allclose(mean, shift, atol=1e-4)


@pytest.mark.parametrize("scale", [0.0, 1e-6, 1e6])
@pytest.mark.parametrize("activation", [0.0, 1e-8, 1.0])
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (1, 2, 1, 2)])
def test_distant_and_inactive_children_are_finite(scale, activation, shape):
    layer = layers.SelfRoutingCapsules(2, 2)
    poses, _, *weights = gradients.random_capsules(layer, shape, 2)
    arguments = [scale * poses, np.full(shape, activation), *weights]
    expected = oracle(layer)(*arguments[:2], *[w[None] for w in weights])
    cotangent = np.ones(expected.shape)
    function = gradients.poses_and_activations(layer, training=False)
    value, _ = gradients.value_and_gradients(function, arguments, cotangent)
    np.testing.assert_allclose(value, expected, rtol=1e-3, atol=1e-5)
