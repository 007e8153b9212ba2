"""EM routing written as its equations stand, tensor by tensor.

The weights, and so the results, are those of the layers in `layers`; time and
memory are not: votes are one tensor for the whole batch, and so is each
difference, square and product, all of which are kept for the gradient.
"""

import unittest.mock

from keras import ops

from layers import matrix_capsule
from models.matrix_capsule import MatrixCapsuleModel


def naive_votes(poses, kernel):
    """Like `em_routing.matrix_votes`, one product of 4x4 for each vote."""
    places, children = poses.shape[3:]
    types = kernel.shape[0]
    poses = ops.transpose(poses, (0, 3, 4, 1, 2))
    poses = ops.reshape(poses, (-1, places * children, 1, 4, 4))
    poses = ops.tile(poses, (1, 1, types, 1, 1))
    kernel = ops.transpose(kernel, (3, 0, 1, 2))
    votes = ops.matmul(poses, ops.tile(kernel, (places, 1, 1, 1))[None])
    votes = ops.reshape(votes, (-1, places * children, types, 16))
    return ops.transpose(votes, (2, 0, 3, 1))


def naive_route(votes, activations, beta_u, beta_a, options, parents):
    """As `em_routing.route`."""
    beta_u, beta_a = (ops.reshape(b, (-1, 1, 1)) for b in (beta_u, beta_a))
    assignments = ops.broadcast_to(
        parents.start(activations),
        (votes.shape[0], ops.shape(votes)[1], votes.shape[3]),
    )
    mean = 0.0
    history = []
    for iteration in range(options.num_routing):
        history.append(assignments)
        weights = ops.expand_dims(assignments * activations, 2)
        total = ops.sum(weights, axis=-1)
        average = ops.sum(weights * votes, axis=-1) / (total + 1e-7)
        mean = (1 - options.damping) * average + options.damping * mean
        squares = ops.square(votes - mean[..., None])
        variance = (
            ops.sum(weights * squares, axis=-1) / (total + 1e-7)
            + options.min_variance
        )
        cost = (beta_u + 0.5 * ops.log(variance)) * total
        factor = options.final_lambda * (1 - 0.95 ** (iteration + 1))
        logits = factor * (beta_a - ops.sum(cost, axis=-1, keepdims=True))
        if iteration < options.num_routing - 1:
            log_p = -ops.sum(squares / (2 * variance[..., None]), axis=2)
            log_p = log_p - 0.5 * ops.sum(ops.log(variance), -1)[..., None]
            assignments = parents.normalise(ops.log_sigmoid(logits) + log_p)
    return mean, logits[..., 0], history


def naive_model(shape, hparams):
    """A `MatrixCapsuleModel` that computes so, whatever calls it."""
    model = NaiveMatrixCapsuleModel(shape, 1, hparams)
    model.create_weights(shape)
    return model


class NaiveMatrixCapsuleModel(MatrixCapsuleModel):
    """What `naive_model` makes."""

    def call(self, x):
        with (
            unittest.mock.patch.object(
                matrix_capsule, "matrix_votes", naive_votes
            ),
            unittest.mock.patch.object(matrix_capsule, "route", naive_route),
            unittest.mock.patch.object(
                matrix_capsule, "by_blocks", _whole_batch
            ),
        ):
            return super().call(x)


def _whole_batch(function, examples, constants, size):
    return function(*examples, *constants)
