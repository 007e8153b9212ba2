"""EM routing in NumPy float64 with explicit loops: for tests only.

The functions follow the paper's equations for each pair of child and parent,
and share no code with the layers. As in numpy_oracle.py, axis 0 of all
arguments runs over P independent copies.
"""

import numpy as np

from testing import numpy_oracle


def em_routing(
    votes,
    activations,
    beta_u,
    beta_a,
    num_routing=3,
    final_lambda=0.01,
    min_variance=5e-4,
    damping=0.0,
    normalise="parents",
):
    """Routes children to parents (position, type).

    Votes are a dict from (child, parent) to [P, 16], activations a dict from
    child to [P]; the betas are [P, O]. Returns dicts from parent to poses
    [P, 16] and to activations [P], and each iteration's dict of assignments.
    """
    types = beta_u.shape[1]
    parents = sorted({parent for _, parent in votes})
    rivals = {}
    for child, (position, kind) in votes:
        group = {"parents": 0, "types": position, "positions": kind}[normalise]
        edges = rivals.setdefault((child, group), [])
        edges.append((child, (position, kind)))
    shares = {}
    for edges in rivals.values():
        share = 1 / len(edges) if normalise == "parents" else 1 / types
        shares |= dict.fromkeys(edges, np.full(len(beta_u), share))
    means = dict.fromkeys(parents, 0.0)
    history = []
    for iteration in range(num_routing):
        history.append(dict(shares))
        variances, logits = {}, {}
        for parent in parents:
            edges = [edge for edge in votes if edge[1] == parent]
            r = np.array([shares[e] * activations[e[0]] for e in edges])
            own, total = np.array([votes[e] for e in edges]), r.sum(axis=0)
            r /= total + 1e-7
            mean = (r[..., None] * own).sum(axis=0)
            mean = (1 - damping) * mean + damping * means[parent]
            means[parent] = mean
            variance = (r[..., None] * (own - mean) ** 2).sum(axis=0)
            variance += min_variance
            variances[parent] = variance
            log_sigmas = 0.5 * np.log(variance).sum(axis=1)
            cost = (16 * beta_u[:, parent[1]] + log_sigmas) * total
            factor = final_lambda * (1 - 0.95 ** (iteration + 1))
            logits[parent] = factor * (beta_a[:, parent[1]] - cost)
        if iteration == num_routing - 1:
            break
        for edges in rivals.values():
            logs = []
            for edge in edges:
                variance = variances[edge[1]]
                squares = (votes[edge] - means[edge[1]]) ** 2
                log_p = -(squares / (2 * variance)).sum(axis=1)
                log_p -= 0.5 * np.log(2 * np.pi * variance).sum(axis=1)
                logs.append(log_p - np.log1p(np.exp(-logits[edge[1]])))
            logs = np.array(logs)
            largest = logs.max(axis=0)
            whole = np.exp(logs - largest).sum(axis=0)
            for edge, log in zip(edges, logs, strict=True):
                shares[edge] = np.exp(log - largest) / whole
    return (
        means,
        {parent: 1 / (1 + np.exp(-logit)) for parent, logit in logits.items()},
        history,
    )


def vote(pose, weights):
    """A pose [P, 16], 4x4 row by row, times weights [P, 4, 4]: [P, 16]."""
    return (pose.reshape(-1, 4, 4) @ weights).reshape(-1, 16)


def conv_votes(poses, weights, strides, padding):
    """Votes, and numbers of rows and columns; weights [P, k, k, I, O, 4, 4].

    Poses are [P, H, W, I, 16]. Children (row, column, type) exclude padding.
    """
    height, width, kinds = poses.shape[1:4]
    size, types = weights.shape[1], weights.shape[4]
    rule = size, strides, padding
    above, below = numpy_oracle.added_zeros(height, *rule)
    left, right = numpy_oracle.added_zeros(width, *rule)
    rows = (above + height + below - size) // strides + 1
    columns = (left + width + right - size) // strides + 1
    votes = {}
    for y, x, ky, kx in np.ndindex(rows, columns, size, size):
        row, column = y * strides + ky - above, x * strides + kx - left
        if not (0 <= row < height and 0 <= column < width):
            continue
        for i, o in np.ndindex(kinds, types):
            votes[(row, column, i), ((y, x), o)] = vote(
                poses[:, row, column, i], weights[:, ky, kx, i, o]
            )
    return votes, (rows, columns)


def class_votes(poses, weights, coordinates):
    """As `conv_votes`, for weights [P, I, O, 4, 4] and one position."""
    height, width, kinds = poses.shape[1:4]
    votes = {}
    for row, column, i in np.ndindex(height, width, kinds):
        for o in range(weights.shape[2]):
            v = vote(poses[:, row, column, i], weights[:, i, o])
            if coordinates:
                v[:, 3] += (row + 0.5) / height
                v[:, 7] += (column + 0.5) / width
            votes[(row, column, i), ((0, 0), o)] = v
    return votes, (1, 1)


def layer(poses, activations, beta_u, beta_a, votes, positions, **options):
    """Poses and activations as one array [P, h, w, O, 17], and assignments."""
    of_child = {child: activations[(slice(None), *child)] for child, _ in votes}
    means, probabilities, history = em_routing(
        votes, of_child, beta_u, beta_a, **options
    )
    types = beta_u.shape[1]
    out = np.zeros((len(poses), *positions, types, 17))
    for ((y, x), o), mean in means.items():
        out[:, y, x, o, :16] = mean
        out[:, y, x, o, 16] = probabilities[(y, x), o]
    return out, history
