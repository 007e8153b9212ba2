"""EM routing of matrix capsules: pure functions.

Axes have this order:

  O  parent capsule types
  N  parent positions of all images (any leading axes)
  16 entries of a pose, a 4x4 matrix row by row
  K  children in the receptive field of a parent position

All is computed in float32. Activations are sigmoids of logits and their
logarithms are computed from the logits.

Source: G. Hinton, S. Sabour, N. Frosst, "Matrix capsules with EM routing",
ICLR 2018, https://openreview.net/forum?id=HJWLfGWRb ("the paper" here).
"""

import dataclasses
import functools

from keras import ops

from .backends import is_on_cpu
from .routing import softmax
from .tensors import Tensor, largest, require_shape

POSE_SIZE = 4
POSE_ENTRIES = POSE_SIZE**2
NORMALISATIONS = ("parents", "types", "positions")

# Added to sums of assignments. A parent whose children are all inactive then
# has mean 0 and the minimum variance.
_EPSILON = 1e-7
_LAMBDA_DECAY = 0.95  # per iteration


@dataclasses.dataclass(frozen=True)
class EMOptions:
    """Options of EM routing.

    Attributes:
      num_routing: int, number of M-steps; there is one E-step fewer.
      final_lambda: float > 0, limit of the inverse temperature: iteration
        t = 0, 1, .. has lambda = final_lambda * (1 - 0.95^(t + 1)).
      min_variance: float > 0, added to each variance, because a parent with
        one child has variance 0.
      damping: float in [0, 1), weight of the previous mean (initially 0) in
        each mean; 0 in the paper, 0.1 in its authors' code.
      normalise: over which parents the assignments of a child sum to 1:
        "parents", all parents of the child (the paper); "types", all types at
        each position; "positions", all positions of each type (the authors'
        code). With "types" and "positions" assignments are initially 1 / O.
    """

    num_routing: int = 3
    final_lambda: float = 0.01
    min_variance: float = 5e-4
    damping: float = 0.0
    normalise: str = "parents"

    def __post_init__(self):
        if self.num_routing < 1 or self.normalise not in NORMALISATIONS:
            raise ValueError(
                "`num_routing` must be at least 1 and `normalise` one of "
                f"{NORMALISATIONS}. Received: {self}"
            )


def em_routing(
    votes: Tensor,
    activations: Tensor,
    beta_u: Tensor,
    beta_a: Tensor,
    options: EMOptions | None = None,
) -> tuple[Tensor, Tensor]:
    """EM routing, procedure 1 of the paper.

    For each parent j, with sums over its children i and lambda of `EMOptions`,
    the M-step computes

      r_ij = R_ij a_i,  S_j = sum r_ij
      mu_j = sum r_ij V_ij / S_j
      var_j = sum r_ij (V_ij - mu_j)^2 / S_j + min_variance
      a_j = sigmoid(lambda (beta_a - S_j sum_h (beta_u + log(var_j^h) / 2)))

    and, between two M-steps, the E-step

      R_ij = a_j p_ij / sum over j of a_j p_ij

    where p_ij is the density of V_ij under the normal distribution of parent
    j. Initially R_ij = 1 / O. Gradients flow through all iterations.

    Args:
      votes: tensor [..., K, O, 16].
      activations: tensor [..., K], in [0, 1].
      beta_u: tensor [O].
      beta_a: tensor [O].
      options: `EMOptions`. With a single parent position "parents" and
        "types" are the same.

    Returns:
      Pair of float32 tensors: poses [..., O, 16] and activations [..., O].
    """
    poses, logits, _ = _route_votes(votes, activations, beta_u, beta_a, options)
    *leading, _, types, entries = ops.shape(votes)
    poses = ops.transpose(poses, (1, 0, 2))  # [N, O, 16]
    activations = ops.sigmoid(ops.transpose(logits))  # [N, O]
    return (
        ops.reshape(poses, (*leading, types, entries)),
        ops.reshape(activations, (*leading, types)),
    )


def em_assignments(
    votes: Tensor,
    activations: Tensor,
    beta_u: Tensor,
    beta_a: Tensor,
    options: EMOptions | None = None,
) -> Tensor:
    """Assignments R of `em_routing`: float32 [num_routing, ..., K, O]."""
    _, _, assignments = _route_votes(
        votes, activations, beta_u, beta_a, options
    )
    stacked = ops.moveaxis(ops.stack(assignments), 1, -1)  # [T, N, K, O]
    return ops.reshape(stacked, (len(assignments), *ops.shape(votes)[:-1]))


def _route_votes(votes, activations, beta_u, beta_a, options):
    options = options or EMOptions()
    if options.normalise == "positions":
        raise ValueError(
            '`normalise` must be "parents" or "types" for votes without '
            "positions. Received: 'positions'"
        )
    children, types, entries = votes.shape[-3:]
    require_shape("votes", votes, (*votes.shape[:-1], 16))
    require_shape("activations", activations, votes.shape[:-2])
    require_shape("beta_u", beta_u, (types,))
    require_shape("beta_a", beta_a, (types,))
    votes = ops.reshape(
        ops.cast(votes, "float32"), (-1, children, types, entries)
    )
    return route(
        ops.transpose(votes, (2, 0, 3, 1)),  # [O, N, 16, K]
        ops.reshape(activations, (-1, children)),
        functools.partial(em_fit, beta_u, beta_a, options),
        options,
        OverTypes(),
    )


def _materialize(tensor):
    """Writes a tensor to memory once, by a product with the identity matrix.

    On CPUs TensorFlow's XLA would compute it again in each operation that
    reads it. The number of entries must be a multiple of 4.
    """
    if not is_on_cpu("tensorflow"):
        return tensor
    rows = ops.reshape(tensor, (-1, POSE_SIZE))
    rows = ops.matmul(rows, ops.eye(POSE_SIZE, dtype="float32"))
    return ops.reshape(rows, ops.shape(tensor))


@ops.custom_gradient
def matrix_votes(poses, kernel):
    """Votes V = M W of children for every parent type.

    Products of 4x4 matrices are too small to be vectorized. Each entry of the
    votes is a sum of four products, each computed for all children at once, and
    the gradients are one larger matrix product for each child.

    Poses are [N, 4, 4, P, C], of C children at each of P places of a receptive
    field; all places share the kernel [O, 4, 4, C]. The votes are
    [O, N, 16, P * C]. All are float32.
    """
    places, children = poses.shape[3:]
    types = kernel.shape[0]
    poses = _materialize(poses)
    votes = sum(  # [O, N, 4, 4, P, C]
        poses[None, :, :, row, None] * kernel[:, None, None, row, :, None]
        for row in range(POSE_SIZE)
    )

    def gradients(*arguments, upstream=None):
        if upstream is None:
            (upstream,) = arguments
        vote_gradients = ops.reshape(
            _materialize(upstream),
            (types, -1, POSE_SIZE, POSE_SIZE, places, children),
        )
        vote_gradients = ops.reshape(  # [C, O * 4, 4 * N * P]
            ops.transpose(vote_gradients, (5, 0, 3, 1, 2, 4)),
            (children, types * POSE_SIZE, -1),
        )
        columns = ops.reshape(  # [C, 4, O * 4]
            ops.transpose(kernel, (3, 1, 0, 2)), (children, POSE_SIZE, -1)
        )
        rows = ops.reshape(  # [C, 4 * N * P, 4]
            ops.transpose(poses, (4, 0, 1, 3, 2)), (children, -1, POSE_SIZE)
        )
        pose_gradients = ops.reshape(
            ops.matmul(columns, vote_gradients),
            (children, POSE_SIZE, -1, POSE_SIZE, places),
        )
        kernel_gradients = ops.reshape(
            ops.matmul(vote_gradients, rows),
            (children, types, POSE_SIZE, POSE_SIZE),
        )
        return (
            ops.transpose(pose_gradients, (2, 3, 1, 4, 0)),
            ops.transpose(kernel_gradients, (1, 3, 2, 0)),
        )

    votes = ops.reshape(votes, (types, -1, POSE_ENTRIES, places * children))
    return votes, gradients


def em_fit(beta_u, beta_a, options, total, mean, scatter, iteration):
    """The `fit` of EM routing, see `route`."""
    beta_u, beta_a = (
        ops.reshape(ops.cast(beta, "float32"), (-1, 1))
        for beta in (beta_u, beta_a)
    )
    variance = scatter / (total + _EPSILON) + options.min_variance
    log_deviations = 0.5 * ops.sum(ops.log(variance), axis=-1)  # [O, N]
    cost = total[:, :, 0] * (POSE_ENTRIES * beta_u + log_deviations)
    inverse_temperature = options.final_lambda * (
        1 - _LAMBDA_DECAY ** (iteration + 1)
    )
    logits = inverse_temperature * (beta_a - cost)
    # The constant (2 pi)^-8 of p cancels in R.
    return 0.5 / variance, ops.log_sigmoid(logits) - log_deviations, logits


def route(votes, activations, fit, options, parents, prior_weight=_EPSILON):
    """Routing like `em_routing`, with all sums as matrix products.

    No tensor larger than the votes is formed: squared distances to a mean m
    are expanded,

      sum r (V - m)^2 = sum r V^2 - 2 m sum r V + m^2 sum r

    also in the E-step. To avoid cancellation, the first mean of the votes is
    subtracted from the votes before.

    Args:
      votes: float32 tensor [O, N, 16, K].
      activations: tensor [N, K]; 0 for padding.
      fit: function of total weights S [O, N, 1], means and scatters sum r
        (V - mean)^2 [O, N, 16], and the iteration. It returns precisions [O, N,
        16] and terms [O, N], such that R is the softmax of
        term - sum precision (V - mean)^2, and logits [O, N].
      options: `EMOptions`, of which `num_routing` and `damping` are used.
      parents: `OverTypes` or `OverPositions`.
      prior_weight: float, the weight of a vote of 0 in each mean.

    Returns:
      Tuple of float32 poses [O, N, 16], logits of the activations [O, N], and
      a list of the assignments [O, N, K] of each iteration.
    """
    types, _, _, children = votes.shape
    activations = ops.cast(activations, "float32")
    uniform = ops.full_like(activations, 1 / types)[None]
    assignments = ops.broadcast_to(
        parents.start(uniform), (types, ops.shape(votes)[1], children)
    )
    weights = assignments * activations
    center = ops.stop_gradient(
        over_children(votes, weights)
        / (ops.sum(weights, axis=-1, keepdims=True) + _EPSILON)
    )
    votes = votes - center[..., None]
    squares = ops.square(votes)

    mean = 0.0
    all_assignments = []
    for iteration in range(options.num_routing):
        all_assignments.append(assignments)
        # M-step.
        weights = assignments * activations
        total = ops.sum(weights, axis=-1, keepdims=True)  # S, [O, N, 1]
        first_moment = over_children(votes, weights)  # [O, N, 16]
        second_moment = over_children(squares, weights)
        undamped = (first_moment + center * total) / (total + prior_weight)
        mean = (1 - options.damping) * undamped + options.damping * mean
        shift = mean - center
        scatter = (
            second_moment - 2 * shift * first_moment + ops.square(shift) * total
        )
        precision, terms, logits = fit(
            total, mean, ops.maximum(scatter, 0.0), iteration
        )
        if iteration == options.num_routing - 1:
            break
        # E-step.
        distances = over_entries(squares, precision) - 2 * over_entries(
            votes, precision * shift
        )  # [O, N, K]
        terms = terms - ops.sum(precision * ops.square(shift), axis=-1)
        assignments = parents.normalise(terms[..., None] - distances)
    return mean, logits, all_assignments


def over_children(votes, weights):
    """Weighted sums, [O, N, 16, K] and [O, N, K] -> [O, N, 16]."""
    return ops.matmul(votes, weights[..., None])[..., 0]


def over_entries(votes, weights):
    """Weighted sums, [O, N, 16, K] and [O, N, 16] -> [O, N, K]."""
    return ops.matmul(weights[:, :, None], votes)[:, :, 0]


class OverTypes:
    """Assignments that sum to 1 over the types at each parent position."""

    def start(self, uniform):
        """The initial assignments [1, N, K], given 1 / O in this shape."""
        return uniform

    def normalise(self, log_densities):
        """log(a_j p_ij) -> R_ij, both float32 [O, N, K]."""
        return softmax(log_densities, axis=0)


class OverPositions:
    """Assignments of a child that sum to 1 over all windows that contain it.

    With `by_type` each sum is over one type of parents, else over all types.
    Initially they are 1 / O; `divide` divides that by the number of windows.
    """

    def __init__(self, window, by_type=False, divide=True):
        self._window = window
        self._by_type = by_type
        self._divide = divide and not by_type

    def start(self, uniform):
        """The initial assignments [1, N, K], given 1 / O in this shape."""
        if not self._divide:
            return uniform
        # The same numbers of parents for each image of the batch.
        height, width = self._window.positions
        ones = ops.ones((1, height * width, uniform.shape[-1]), "float32")
        shares = 1 / self._window.over_windows(ones, ops.add)
        uniform_by_image = ops.reshape(uniform, (-1, *ones.shape[1:]))
        return ops.reshape(uniform_by_image * shares, ops.shape(uniform))

    def normalise(self, log_densities):
        """log(a_j p_ij) -> R_ij, both float32 [O, N, K]."""
        maxima = ops.stop_gradient(log_densities)
        if not self._by_type:
            maxima = largest(maxima, axis=0)
        maxima = self._window.over_windows(maxima, ops.maximum)
        total = exponentials = ops.exp(log_densities - maxima)
        if not self._by_type:
            total = ops.sum(exponentials, axis=0, keepdims=True)
        return exponentials / self._window.over_windows(total, ops.add)
