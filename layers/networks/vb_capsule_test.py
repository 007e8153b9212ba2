import numpy as np
import pytest
import scipy.special
from keras import ops

import layers
from layers.networks.vb_capsule import digamma
from testing import em_oracle, gradients


# Axis 0 runs over copies, as in em_oracle.py.
def loops(votes, activations, types, num_routing):
    """Returns dicts from parent to means [P, 16] and to scores [P]."""
    parents = sorted({parent for _, parent in votes})
    shares = dict.fromkeys(votes, 1 / types)
    for iteration in range(num_routing):
        totals, means, scales, log_dets, scores = {}, {}, {}, {}, {}
        for j in parents:
            r = {i: shares[i, j] * activations[i] for i, k in votes if k == j}
            totals[j] = sum(r.values())
            mean = sum(w[:, None] * votes[i, j] for i, w in r.items())
            means[j] = mean / (1 + totals[j])[:, None]
            scales[j] = 1 + means[j] ** 2
            for i, w in r.items():
                scales[j] += w[:, None] * (votes[i, j] - means[j]) ** 2
            log_dets[j] = 16 * np.log(2) - np.log(scales[j]).sum(axis=1)
            for d in range(16):
                log_dets[j] += scipy.special.digamma((17 + totals[j] - d) / 2)
        log_shares = {}
        for position, o in parents:
            alphas = sum(1 + totals[position, k] for k in range(types))
            own = scipy.special.digamma(1 + totals[position, o])
            log_shares[position, o] = own - scipy.special.digamma(alphas)
        for j in parents:
            entropy = 8 * (1 + np.log(2 * np.pi)) - log_dets[j] / 2
            scores[j] = -np.exp(log_shares[j]) * entropy
        if iteration == num_routing - 1:
            break
        by_child = {}
        for i, j in votes:
            distance = (votes[i, j] - means[j]) ** 2 / scales[j]
            log_rho = log_shares[j] + log_dets[j] / 2 - 8 / (1 + totals[j])
            log_rho -= (17 + totals[j]) / 2 * distance.sum(axis=1)
            by_child.setdefault(i, {})[j] = log_rho
        for i, log_rhos in by_child.items():
            whole = np.logaddexp.reduce(list(log_rhos.values()))
            for j, log_rho in log_rhos.items():
                shares[i, j] = np.exp(log_rho - whole)
    return means, scores


def normalized(poses, activations, kernel, votes_of, types, num_routing):
    """Normalized poses and activations [P, B, h, w, O, 17] of P batches.

    Poses are [P, B, H, W, I, 16]; `votes_of` takes them, all copies in one
    axis, and the weights.
    """
    copies, images = poses.shape[:2]
    poses = poses.reshape(-1, *poses.shape[2:])
    activations = activations.reshape(-1, *activations.shape[2:])
    votes, grid = votes_of(poses, np.repeat(kernel, images, axis=0))
    of_child = {i: activations[(slice(None), *i)] for i, _ in votes}
    means, scores = loops(votes, of_child, types, num_routing)
    out = np.zeros((copies * images, *grid, types, 17))
    for ((y, x), o), mean in means.items():
        out[:, y, x, o, :16], out[:, y, x, o, 16] = mean, scores[(y, x), o]
    out = out.reshape(copies, images, *out.shape[1:])
    for part, axes in ((slice(16), (1, 2, 3, 5)), (slice(16, 17), (1, 2, 3))):
        x = out[..., part]
        x = x - x.mean(axis=axes, keepdims=True)
        out[..., part] = x / np.sqrt(x.var(axis=axes, keepdims=True) + 1e-5)
    out[..., 16] = 1 / (1 + np.exp(-out[..., 16]))
    return out


def check(layer, shape, votes_of):
    """Compares results and gradients with the oracle's."""
    types = layer.num_capsules

    def oracle(*arguments):
        out = normalized(*arguments, votes_of, types, layer.num_routing)
        return out.reshape(-1, shape[0], *layer._positions, types, 17)

    arguments = gradients.random_capsules(layer, shape, scale=0.7)
    function = gradients.poses_and_activations(layer, training=True)
    gradients.check_whole_batch(function, arguments, oracle, slack=10)


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
    poses, activations, kernel = gradients.random_capsules(layer, (2, 2, 2, 1))
    arguments = [scale * poses, active * activations, kernel]
    cotangent = np.ones((2, *layer._positions, 2, 17))
    function = gradients.poses_and_activations(layer, training=True)
    gradients.value_and_gradients(function, arguments, cotangent)


def test_digamma():
    x = np.geomspace(1, 1e4, 300, dtype="float32")
    ours = ops.convert_to_numpy(digamma(ops.convert_to_tensor(x)))
    expected = scipy.special.digamma(x.astype("float64"))
    np.testing.assert_allclose(ours, expected, atol=1.5e-6)
