"""EM routing of matrix capsules: pure functions.

Axes are named as in the paper and in this order:

  O  parent capsule types
  N  parent positions, of all images (any leading axes)
  K  children in the receptive field of one parent position
  16 entries of a pose, a 4x4 matrix row by row

Everything after the votes is computed in float32 and in logarithms: an
activation is the sigmoid of a logit, whose logarithm is taken of the logit.

Source: G. Hinton, S. Sabour, N. Frosst, "Matrix capsules with EM routing",
ICLR 2018, https://openreview.net/forum?id=HJWLfGWRb ("the paper" here).
"""

import dataclasses

from keras import ops

from .tensor import Tensor

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
class Options:
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
        if isinstance(self.num_routing, bool) or not (
            isinstance(self.num_routing, int) and self.num_routing >= 1
        ):
            raise ValueError(
                "num_routing must be a positive integer. Received: "
                f"{self.num_routing!r}"
            )
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
    options: Options | None = None,
) -> tuple[Tensor, Tensor]:
    """Routes children to parents that all of them vote for.

    For each parent j, with sums over its children i and lambda of `Options`,
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
      options: `Options`.

    Returns:
      Pair of float32 tensors: poses [..., O, 16] and activations [..., O].
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
    options: Options | None = None,
) -> Tensor:
    """The assignments R of every iteration of `em_routing`.

    Args: as `em_routing`.

    Returns:
      float32 tensor [num_routing, ..., K, O]; over O they sum to 1.
    """
    _, _, assignments = _route_formed(
        votes, activations, beta_u, beta_a, options
    )
    stacked = ops.moveaxis(ops.stack(assignments), 1, -1)  # [T, N, K, O]
    return ops.reshape(stacked, (len(assignments), *ops.shape(votes)[:-1]))


def _route_formed(votes, activations, beta_u, beta_a, options):
    children, types, entries = votes.shape[-3:]
    by_type = ops.reshape(votes, (-1, children, types, entries))
    return route(
        ops.transpose(by_type, (2, 0, 1, 3)),
        ops.reshape(activations, (-1, children)),
        beta_u,
        beta_a,
        options or Options(),
        OverTypes(types),
    )


def matrix_votes(poses, kernel):
    """Votes V = M W of children for every parent type.

    Args:
      poses: tensor [N, P, C, 16]: at each of P places of a receptive field C
        children, to which the same transformations apply at every place.
      kernel: tensor [C, O, 4, 4].

    Returns:
      Tensor [O, N, P * C, 16].
    """
    places, children = poses.shape[1:3]
    types = kernel.shape[1]
    # One product for each child: its rows by the columns of all types.
    rows = ops.reshape(
        ops.transpose(poses, (2, 0, 1, 3)), (children, -1, POSE_SIZE)
    )
    columns = ops.reshape(
        ops.transpose(kernel, (0, 2, 1, 3)), (children, POSE_SIZE, -1)
    )
    votes = ops.reshape(
        ops.matmul(rows, columns),
        (children, -1, places, POSE_SIZE, types, POSE_SIZE),
    )
    return ops.reshape(
        ops.transpose(votes, (4, 1, 2, 0, 3, 5)),
        (types, -1, places * children, POSE_ENTRIES),
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
      votes: tensor [O, N, K, 16].
      activations: tensor [N, K]; 0 for what is no child.
      beta_u: tensor [O].
      beta_a: tensor [O].
      options: `Options`.
      parents: `OverTypes` or `OverPositions`, over which parents the
        assignments of a child sum to 1.

    Returns:
      Tuple of float32 poses [O, N, 16], the logits of activations [O, N], and
      the list of the assignments [O, N, K] of each iteration.
    """
    types = votes.shape[0]
    votes = ops.cast(votes, "float32")
    activations = ops.cast(activations, "float32")
    beta_u, beta_a = (
        ops.reshape(ops.cast(beta, "float32"), (types, 1))
        for beta in (beta_u, beta_a)
    )
    assignments = parents.start(activations)
    weights = ops.expand_dims(assignments * activations, -2)  # [1, N, 1, K]
    centre = ops.stop_gradient(
        ops.matmul(weights, votes)
        / (ops.sum(weights, axis=-1, keepdims=True) + _EPSILON)
    )
    votes = votes - centre
    squares = ops.square(votes)
    centre = centre[:, :, 0]  # [O, N, 16]

    mean = 0.0
    all_assignments = []
    for iteration in range(options.num_routing):
        all_assignments.append(assignments)
        # M-step. [O or 1, N, 1, K] and its sum [O or 1, N, 1].
        weights = ops.expand_dims(assignments * activations, -2)
        total = ops.sum(weights, axis=-1)
        first = ops.matmul(weights, votes)[:, :, 0]
        second = ops.matmul(weights, squares)[:, :, 0]
        undamped = (first + centre * total) / (total + _EPSILON)
        mean = (1 - options.damping) * undamped + options.damping * mean
        shift = mean - centre
        scatter = second - 2 * shift * first + ops.square(shift) * total
        variance = (
            ops.maximum(scatter, 0.0) / (total + _EPSILON)
            + options.min_variance
        )
        log_deviations = 0.5 * ops.sum(ops.log(variance), axis=-1)  # [O, N]
        cost = total[:, :, 0] * (votes.shape[-1] * beta_u + log_deviations)
        inverse_temperature = options.final_lambda * (
            1 - _LAMBDA_DECAY ** (iteration + 1)
        )
        logits = inverse_temperature * (beta_a - cost)
        if iteration == options.num_routing - 1:
            break
        # E-step. A constant of all parents is left out of log p.
        precision = 0.5 / variance
        distances = ops.matmul(
            squares, ops.expand_dims(precision, -1)
        ) - 2 * ops.matmul(votes, ops.expand_dims(precision * shift, -1))
        of_parent = (
            ops.log_sigmoid(logits)
            - log_deviations
            - ops.sum(precision * ops.square(shift), axis=-1)
        )
        assignments = parents.normalise(
            ops.expand_dims(of_parent, -1) - distances[..., 0]
        )
    shape = ops.shape(votes)[:-1]
    all_assignments = [ops.broadcast_to(a, shape) for a in all_assignments]
    return mean, logits, all_assignments


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
