"""EM routing of matrix capsules: pure functions.

matrix_votes.py names the axes. All computations are in float32. Logarithms of
activations are finite, because they are computed from logits.

Source: G. Hinton, S. Sabour, N. Frosst, "Matrix capsules with EM routing",
ICLR 2018, https://openreview.net/forum?id=HJWLfGWRb ("the paper" here).
"""

import dataclasses
import functools

from keras import ops

from .matrix_votes import POSE_ENTRIES
from .mixture_routing import EPSILON, Parents, fit_mixture
from .tensors import Tensor, require_shape

NORMALIZATIONS = ("parents", "types", "positions")

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
      damping: float in [0, 1), weight of the previous mean in each mean; the
        initial mean is 0. The paper has no damping; its authors' code has 0.1.
      normalise: over which parents the assignments of a child sum to 1:
        "parents", all parents of the child (the paper); "types", all types at
        one position; "positions", all positions of one type (the authors'
        code). With "parents", assignments start at 1 / (number of the child's
        parents), otherwise at 1 / (number of parent types).
    """

    num_routing: int = 3
    final_lambda: float = 0.01
    min_variance: float = 5e-4
    damping: float = 0.0
    normalise: str = "parents"

    def __post_init__(self):
        if self.num_routing < 1 or self.normalise not in NORMALIZATIONS:
            raise ValueError(
                "`num_routing` must be at least 1 and `normalise` one of "
                f"{NORMALIZATIONS}. Received: {self}"
            )


def em_routing(
    votes: Tensor,
    activations: Tensor,
    beta_u: Tensor,
    beta_a: Tensor,
    options: EMOptions | None = None,
) -> tuple[Tensor, Tensor]:
    """EM routing, procedure 1 of the paper.

    Child i has the activation a_i and votes V_ij for parent j. R_ij is the
    share of child i that is assigned to parent j. The M-step is as follows,
    where sum_h is over the 16 pose entries and sum is over the children i of j:

      r_ij = R_ij a_i,  S_j = sum r_ij
      mu_j = (sum r_ij V_ij) / S_j
      var_j = (sum r_ij (V_ij - mu_j)^2) / S_j + min_variance
      a_j = sigmoid(lambda (beta_a - S_j sum_h (beta_u + log(var_j^h) / 2)))

    Between two M-steps, the E-step computes

      R_ij = a_j p_ij / (sum over parents k of a_k p_ik)

    where p_ij is the density of V_ij under the normal distribution of parent j.
    Initially R_ij = 1 / O. Gradients flow through all iterations.

    Args:
      votes: tensor [..., K, O, 16].
      activations: tensor [..., K], in [0, 1].
      beta_u: tensor [O].
      beta_a: tensor [O].
      options: `EMOptions`, which set lambda. As there is one parent position,
        `normalise` "types" equals "parents", and "positions" raises ValueError.

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
    """R_ij in each M-step of `em_routing`: float32 [num_routing, ..., K, O]."""
    *_, assignments = _route_votes(votes, activations, beta_u, beta_a, options)
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
    votes = ops.cast(votes, "float32")
    votes = ops.reshape(votes, (-1, children, types, entries))
    votes = ops.transpose(votes, (2, 0, 3, 1))  # [O, N, 16, K]
    activations = ops.reshape(activations, (-1, children))
    fit = functools.partial(em_fit, beta_u, beta_a, options)
    steps = options.num_routing, options.damping
    return fit_mixture(votes, activations, fit, Parents(), *steps)


def em_fit(beta_u, beta_a, options, total, mean, scatter, iteration):
    """With the first three arguments bound, this is `fit` of `fit_mixture`."""
    beta_u, beta_a = (
        ops.reshape(ops.cast(beta, "float32"), (-1, 1))
        for beta in (beta_u, beta_a)
    )
    variance = scatter / (total + EPSILON) + options.min_variance
    log_deviations = 0.5 * ops.sum(ops.log(variance), axis=-1)  # [O, N]
    cost = total[:, :, 0] * (POSE_ENTRIES * beta_u + log_deviations)
    inverse_temperature = options.final_lambda * (
        1 - _LAMBDA_DECAY ** (iteration + 1)
    )
    logits = inverse_temperature * (beta_a - cost)
    # The constant (2 pi)^-8 of p cancels in R.
    return 0.5 / variance, ops.log_sigmoid(logits) - log_deviations, logits
