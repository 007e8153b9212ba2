"""Variational Bayes routing in NumPy float64 with loops: for tests only.

Votes and activations are those of em_oracle.py, axis 0 copies.
"""

import numpy as np
from scipy.special import digamma


def vb_routing(votes, activations, types, num_routing):
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
                log_dets[j] += digamma((17 + totals[j] - d) / 2)
        log_shares = {}
        for position, o in parents:
            alphas = sum(1 + totals[position, k] for k in range(types))
            own = digamma(1 + totals[position, o])
            log_shares[position, o] = own - digamma(alphas)
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


def layer(poses, activations, kernel, votes_of, types, num_routing):
    """Normalized poses and activations [P, B, h, w, O, 17] of P batches.

    Poses are [P, B, H, W, I, 16]; `votes_of` takes them, all copies in one
    axis, and the weights.
    """
    copies, images = poses.shape[:2]
    poses = poses.reshape(-1, *poses.shape[2:])
    activations = activations.reshape(-1, *activations.shape[2:])
    votes, grid = votes_of(poses, np.repeat(kernel, images, axis=0))
    of_child = {i: activations[(slice(None), *i)] for i, _ in votes}
    means, scores = vb_routing(votes, of_child, types, num_routing)
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
