"""Compares a training step of matrix capsules with the plain equations.

  python -m benchmarks.em_benchmark --networks=large --kinds=ours

The paper's network with images of 32x32x2 and 5 classes: large is 32-32-32-32,
small 64-8-16-16. The naive network computes the equations tensor by tensor.
"of naive" is the median of the ratios of the speeds within a round. Peak memory
is that of a process, and "MB more" what it needs beyond batches of one image.
"""

import argparse
import unittest.mock

import numpy as np
from keras import ops

from benchmarks import utils
from input_data import features as keys
from layers import matrix_capsule
from models.matrix_capsule import HParams, MatrixCapsuleModel
from models.optimizer import compile_model

SHAPE = keys.ImageShape(32, 32, 2, 5)
NETWORKS = {"large": {}, "small": HParams.PRESETS["small"]}
FLAGS = {
    "networks": ("small",),
    "kinds": ("ours", "naive"),
    "batch_size": 32,
    "steps": 3,
    "rounds": 3,
}


def naive_votes(poses, kernel):
    """`em_routing.matrix_votes` with one product of 4x4 for each vote."""
    places, children = poses.shape[3:]
    types = kernel.shape[0]
    poses = ops.transpose(poses, (0, 3, 4, 1, 2))
    poses = ops.reshape(poses, (-1, places * children, 1, 4, 4))
    poses = ops.tile(poses, (1, 1, types, 1, 1))
    kernel = ops.transpose(kernel, (3, 0, 1, 2))
    votes = ops.matmul(poses, ops.tile(kernel, (places, 1, 1, 1))[None])
    votes = ops.reshape(votes, (-1, places * children, types, 16))
    return ops.transpose(votes, (2, 0, 3, 1))


def naive_route(votes, activations, fit, options, parents):
    """`em_routing.route`, procedure 1 of the paper, without damping."""
    beta_u, beta_a = (ops.reshape(b, (-1, 1, 1)) for b in fit.args[:2])
    assignments = ops.broadcast_to(
        parents.start(activations),
        (votes.shape[0], ops.shape(votes)[1], votes.shape[3]),
    )
    for iteration in range(options.num_routing):
        weights = ops.expand_dims(assignments * activations, 2)
        total = ops.sum(weights, axis=-1)
        mean = ops.sum(weights * votes, axis=-1) / (total + 1e-7)
        squares = ops.square(votes - mean[..., None])
        variance = ops.sum(weights * squares, axis=-1) / (total + 1e-7)
        variance = variance + options.min_variance
        cost = (beta_u + 0.5 * ops.log(variance)) * total
        factor = options.final_lambda * (1 - 0.95 ** (iteration + 1))
        logits = factor * (beta_a - ops.sum(cost, axis=-1, keepdims=True))
        if iteration < options.num_routing - 1:
            log_p = -ops.sum(squares / (2 * variance[..., None]), axis=2)
            log_p = log_p - 0.5 * ops.sum(ops.log(variance), -1)[..., None]
            assignments = parents.normalise(ops.log_sigmoid(logits) + log_p)
    return mean, logits[..., 0], None


class NaiveMatrixCapsules(MatrixCapsuleModel):
    """The same network by the plain equations."""

    def call(self, x):
        with unittest.mock.patch.multiple(
            matrix_capsule,
            matrix_votes=naive_votes,
            route=naive_route,
            by_blocks=lambda function, examples, constants, size: function(
                *examples, *constants
            ),
        ):
            return super().call(x)


KINDS = {"ours": MatrixCapsuleModel, "naive": NaiveMatrixCapsules}


def measure(flags):
    """Yields one row for each network and kind."""
    cases = [(name, kind) for name in flags.networks for kind in flags.kinds]
    seconds = utils.in_own_process(utils.alternate, make_step, cases, flags)
    one_image = argparse.Namespace(**{**vars(flags), "batch_size": 1})
    for case in cases:
        least = utils.in_own_process(utils.peak, make_step, case, one_image)
        peak = utils.in_own_process(utils.peak, make_step, case, flags)
        yield {
            "network": case[0],
            "step": case[1],
            "ms": 1000 * np.median(seconds[case]),
            "MB": peak,
            "MB more": peak - least,
            "of naive": utils.speed_ratio(seconds, case, (case[0], "naive")),
        }


def make_step(case, flags):
    """A function that trains on one batch."""
    network, kind = case
    model = KINDS[kind](SHAPE, 1, HParams(**NETWORKS[network]))
    model.create_weights(SHAPE)
    compile_model(model)
    size = (flags.batch_size, SHAPE.height, SHAPE.width, SHAPE.depth)
    x = {keys.IMAGES: np.random.default_rng(0).random(size, "float32")}
    labels = np.arange(flags.batch_size) % SHAPE.num_classes
    y = {keys.LOGITS: np.eye(SHAPE.num_classes, dtype="float32")[labels]}
    return lambda: model.train_on_batch(x, y)


if __name__ == "__main__":
    utils.run(measure, FLAGS, __doc__)
