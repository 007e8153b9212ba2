"""EM routing of matrix capsules: pure functions.

Axes are named as in the paper and in this order:

  O  parent capsule types
  N  parent positions, of all images (any leading axes)
  16 entries of a pose, a 4x4 matrix row by row
  K  children in the receptive field of one parent position

Everything is computed in float32 and in logarithms: an activation is the
sigmoid of a logit, whose logarithm is taken of the logit.

Source: G. Hinton, S. Sabour, N. Frosst, "Matrix capsules with EM routing",
ICLR 2018, https://openreview.net/forum?id=HJWLfGWRb ("the paper" here).
"""

import dataclasses

from keras import ops

from .capsule import require_positive
from .utils import Tensor, is_tensorflow_on_cpu

POSE_SIZE = 4
POSE_ENTRIES = POSE_SIZE**2
# Which of a pose's entries the row and the column of a child are added to:
# the first two of the right-hand column.
ROW_ENTRY, COLUMN_ENTRY = 3, 7
NORMALISATIONS = ("parents", "types", "positions")

# Added to the sum of assignments: a parent whose children are all inactive
# has a mean of 0 and the smallest variance.
_EPSILON = 1e-7
# Of the schedule of lambda over the iterations.
_LAMBDA_DECAY = 0.95


@dataclasses.dataclass(frozen=True)
class EMOptions:
    """What EM routing leaves open.

    Attributes:
      num_routing: int, iterations: so many M-steps, one E-step fewer.
      final_lambda: float, the inverse temperature that iteration t = 0, 1, ..
        approaches: lambda = final_lambda * (1 - 0.95^(t + 1)).
      min_variance: float, added to each variance. Of a parent with one child
        the variance is 0, and its logarithm's gradient the inverse.
      damping: float in [0, 1), the share of the mean before in each mean, 0 in
        the paper, 0.1 in its authors' code; there is 0 before the first.
      normalise: over which parents the assignments of a child sum to 1:
        "parents", all parents of the child, as in the paper; "types", those
        at each position by themselves; "positions", those of each type by
        themselves, as in the authors' code from the second iteration on.
        With the last two they are 1 / types at the start.
    """

    num_routing: int = 3
    final_lambda: float = 0.01
    min_variance: float = 5e-4
    damping: float = 0.0
    normalise: str = "parents"

    def __post_init__(self):
        require_positive(num_routing=self.num_routing)
        for name in ("final_lambda", "min_variance"):
            if not getattr(self, name) > 0:
                raise ValueError(
                    f"{name} must be positive. Received: "
                    f"{getattr(self, name)!r}"
                )
        if not 0 <= self.damping < 1:
            raise ValueError(
                "damping must be at least 0 and less than 1. Received: "
                f"{self.damping!r}"
            )
        if self.normalise not in NORMALISATIONS:
            raise ValueError(
                f"normalise must be one of {', '.join(NORMALISATIONS)}. "
                f"Received: {self.normalise!r}"
            )


def em_routing(
    votes: Tensor,
    activations: Tensor,
    beta_u: Tensor,
    beta_a: Tensor,
    options: EMOptions | None = None,
) -> tuple[Tensor, Tensor]:
    """Routes children to parents that all of them vote for.

    For each parent j, with sums over its children i and lambda of `EMOptions`,
    the M-step computes

      r_ij = R_ij a_i,  S_j = sum r_ij
      mu_j = sum r_ij V_ij / S_j
      var_j = sum r_ij (V_ij - mu_j)^2 / S_j + min_variance
      a_j = sigmoid(lambda (beta_a - S_j sum_h (beta_u + log(var_j^h) / 2)))

    and, between two M-steps, the E-step

      R_ij = a_j p_ij / sum over j of a_j p_ij

    with p_ij the density of V_ij under the normal distribution of parent j.
    At first R_ij is 1 / O. Gradients flow through every iteration.

    Args:
      votes: tensor [..., K, O, 16].
      activations: tensor [..., K], in [0, 1].
      beta_u: tensor [O].
      beta_a: tensor [O].
      options: `EMOptions`. At one position all parents of a child are its
        types there: normalise is "parents" or "types", which are the same.

    Returns:
      Pair of float32 tensors: poses [..., O, 16] and activations [..., O].

    Raises:
      ValueError: if normalise is "positions".
    """
    poses, logits, _ = _route_formed(
        votes, activations, beta_u, beta_a, options
    )
    leading = tuple(ops.shape(votes)[:-3])
    num_types = votes.shape[-2]
    return (
        ops.reshape(
            ops.transpose(poses, (1, 0, 2)),
            (*leading, num_types, votes.shape[-1]),
        ),
        ops.reshape(ops.transpose(ops.sigmoid(logits)), (*leading, num_types)),
    )


def em_assignments(
    votes: Tensor,
    activations: Tensor,
    beta_u: Tensor,
    beta_a: Tensor,
    options: EMOptions | None = None,
) -> Tensor:
    """The assignments R of every iteration of `em_routing`.

    Args and raises: as `em_routing`.

    Returns:
      float32 tensor [num_routing, ..., K, O]; over O they sum to 1.
    """
    _, _, assignments = _route_formed(
        votes, activations, beta_u, beta_a, options
    )
    stacked = ops.moveaxis(ops.stack(assignments), 1, -1)  # [T, N, K, O]
    return ops.reshape(stacked, (len(assignments), *ops.shape(votes)[:-1]))


def _route_formed(votes, activations, beta_u, beta_a, options):
    options = options or EMOptions()
    if options.normalise == "positions":
        raise ValueError(
            "normalise must be parents or types where parents have no "
            "positions. Received: 'positions'"
        )
    children, types, entries = votes.shape[-3:]
    votes = ops.cast(votes, "float32")
    by_position = ops.reshape(votes, (-1, children, types, entries))
    return route(
        ops.transpose(by_position, (2, 0, 3, 1)),
        ops.reshape(activations, (-1, children)),
        beta_u,
        beta_a,
        options,
        OverTypes(types),
    )


def _written(tensor):
    """The same tensor, of a multiple of four numbers, written to memory once.

    TensorFlow's XLA computes on CPUs what is read by several loops again in
    each of them, the slower the more axes it is transposed over, but what a
    product of matrices takes or gives only once. The product with the identity
    is four multiplications for each entry.
    """
    if not is_tensorflow_on_cpu():
        return tensor
    rows = ops.reshape(tensor, (-1, POSE_SIZE))
    rows = ops.matmul(rows, ops.eye(POSE_SIZE))
    return ops.reshape(rows, ops.shape(tensor))


@ops.custom_gradient
def matrix_votes(poses, kernel):
    """Votes V = M W of children for every parent type.

    Children are the last axis, along which processors multiply and add: of
    4x4 matrices, products of matrices make no use of them. For the gradients,
    sums over parents, there are larger products, one for each child.

    Args:
      poses: float32 tensor [N, 4, 4, P, C]: of C children at each of P places
        of a receptive field, to which the same transformations apply.
      kernel: float32 tensor [O, 4, 4, C].

    Returns:
      float32 tensor [O, N, 16, P * C].
    """
    places, children = poses.shape[3:]
    types = kernel.shape[0]
    poses = _written(poses)
    votes = sum(
        poses[None, :, :, row, None] * kernel[:, None, None, row, :, None]
        for row in range(POSE_SIZE)
    )

    def gradients(*arguments, upstream=None):
        if upstream is None:
            (upstream,) = arguments
        # One product for each child: what it says to all types, at all N * P
        # places, in one matrix.
        of_votes = ops.reshape(
            _written(upstream),
            (types, -1, POSE_SIZE, POSE_SIZE, places, children),
        )
        of_votes = ops.reshape(
            ops.transpose(of_votes, (5, 0, 3, 1, 2, 4)),
            (children, types * POSE_SIZE, -1),
        )
        columns = ops.reshape(
            ops.transpose(kernel, (3, 1, 0, 2)), (children, POSE_SIZE, -1)
        )
        rows = ops.reshape(
            ops.transpose(poses, (4, 0, 1, 3, 2)), (children, -1, POSE_SIZE)
        )
        of_poses = ops.reshape(
            ops.matmul(columns, of_votes),
            (children, POSE_SIZE, -1, POSE_SIZE, places),
        )
        of_kernel = ops.reshape(
            ops.matmul(of_votes, rows),
            (children, types, POSE_SIZE, POSE_SIZE),
        )
        return (
            ops.transpose(of_poses, (2, 3, 1, 4, 0)),
            ops.transpose(of_kernel, (1, 3, 2, 0)),
        )

    return (
        ops.reshape(votes, (types, -1, POSE_ENTRIES, places * children)),
        gradients,
    )


def route(votes, activations, beta_u, beta_a, options, parents):
    """EM routing, see `em_routing`.

    Sums over the children are products of matrices, of which none is as large
    as the votes: also the squared distances to a mean m,

      sum r (V - m)^2 = sum r V^2 - 2 m sum r V + m^2 sum r

    and those of the E-step. So that they lose no digits, the votes' first
    mean is taken off them before. What is left of the accuracy is that of
    float32 divided by (V - first mean)^2 / var.

    Args:
      votes: float32 tensor [O, N, 16, K].
      activations: tensor [N, K]; 0 for what is no child.
      beta_u: tensor [O].
      beta_a: tensor [O].
      options: `EMOptions`.
      parents: `OverTypes` or `OverPositions`, over which parents the
        assignments of a child sum to 1.

    Returns:
      Tuple of float32 poses [O, N, 16], the logits of activations [O, N], and
      the list of the assignments [O, N, K] of each iteration.
    """
    types, _, entries, children = votes.shape
    activations = ops.cast(activations, "float32")
    beta_u, beta_a = (
        ops.reshape(ops.cast(beta, "float32"), (types, 1))
        for beta in (beta_u, beta_a)
    )
    assignments = ops.broadcast_to(
        parents.start(activations), (types, ops.shape(votes)[1], children)
    )
    weights = assignments * activations
    centre = ops.stop_gradient(
        _over_children(votes, weights)
        / (ops.sum(weights, axis=-1, keepdims=True) + _EPSILON)
    )
    votes = votes - centre[..., None]
    squares = ops.square(votes)

    mean = 0.0
    all_assignments = []
    for iteration in range(options.num_routing):
        all_assignments.append(assignments)
        # M-step.
        weights = assignments * activations
        total = ops.sum(weights, axis=-1, keepdims=True)  # [O, N, 1]
        first = _over_children(votes, weights)
        second = _over_children(squares, weights)
        undamped = (first + centre * total) / (total + _EPSILON)
        mean = (1 - options.damping) * undamped + options.damping * mean
        shift = mean - centre
        scatter = second - 2 * shift * first + ops.square(shift) * total
        variance = (
            ops.maximum(scatter, 0.0) / (total + _EPSILON)
            + options.min_variance
        )
        log_deviations = 0.5 * ops.sum(ops.log(variance), axis=-1)  # [O, N]
        cost = total[:, :, 0] * (entries * beta_u + log_deviations)
        inverse_temperature = options.final_lambda * (
            1 - _LAMBDA_DECAY ** (iteration + 1)
        )
        logits = inverse_temperature * (beta_a - cost)
        if iteration == options.num_routing - 1:
            break
        # E-step. A constant of all parents is left out of log p.
        precision = 0.5 / variance
        distances = _over_entries(squares, precision) - 2 * _over_entries(
            votes, precision * shift
        )
        of_parent = (
            ops.log_sigmoid(logits)
            - log_deviations
            - ops.sum(precision * ops.square(shift), axis=-1)
        )
        assignments = parents.normalise(of_parent[..., None] - distances)
    return mean, logits, all_assignments


def _over_children(votes, weights):
    """[O, N, 16, K] and [O, N, K] to [O, N, 16]."""
    return ops.matmul(votes, weights[..., None])[..., 0]


def _over_entries(votes, weights):
    """[O, N, 16, K] and [O, N, 16] to [O, N, K]."""
    return ops.matmul(weights[:, :, None], votes)[:, :, 0]


class OverTypes:
    """The parents of a child are the types at each position by themselves."""

    def __init__(self, types):
        self._types = types

    def start(self, activations):
        """The first assignments: like activations [N, K], with [1] before."""
        return ops.full_like(activations, 1 / self._types)[None]

    def normalise(self, log_densities):
        """log(a_j p_ij), float32 [O, N, K], to what sums to 1 over O."""
        largest = _largest(log_densities)
        exponentials = ops.exp(log_densities - largest)
        return exponentials / ops.sum(exponentials, axis=0, keepdims=True)


class OverPositions:
    """The parents of a child are at all positions that see it.

    K is here the height and width of a receptive field and the child types.

    Args:
      types: int, O.
      window: `window.Window`.
      by_type: bool, whether each type is by itself; else all are together.
    """

    def __init__(self, types, window, by_type):
        self._types = types
        self._window = window
        self._by_type = by_type

    def start(self, activations):
        """The first assignments: like activations [N, K], with [1] before."""
        uniform = ops.full_like(activations, 1 / self._types)
        if not self._by_type:
            fields = self._window.unflatten(uniform[None])
            shares = 1 / self._window.num_parents()[..., None]
            shares = ops.convert_to_tensor(shares, "float32")
            uniform = ops.reshape(fields * shares, ops.shape(uniform))
        return uniform[None]

    def normalise(self, log_densities):
        """log(a_j p_ij), float32 [O, N, K], to what sums to 1 by child.

        The dense grid of children by parents is never made: of each receptive
        field there is one number for a child, or O if each type is by itself.
        """
        groups = log_densities if self._by_type else _largest(log_densities)
        largest = self._over_fields(ops.stop_gradient(groups), ops.maximum)
        exponentials = ops.exp(log_densities - largest)
        groups = (
            exponentials
            if self._by_type
            else ops.sum(exponentials, axis=0, keepdims=True)
        )
        return exponentials / self._over_fields(groups, ops.add)

    def _over_fields(self, entries, combine):
        """Combines what all receptive fields have of a child: [G, N, K]."""
        fields = self._window.unflatten(entries)
        return ops.reshape(
            self._window.over_fields(fields, combine), ops.shape(entries)
        )


def _largest(log_densities):
    """Over O, kept as an axis of size 1; a constant for gradients."""
    return ops.stop_gradient(ops.max(log_densities, axis=0, keepdims=True))
