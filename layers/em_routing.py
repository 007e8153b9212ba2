"""Matrix capsules with EM routing: each has a 4x4 pose and an activation.

matrix_votes.py names the axes. Routing computes in float32, and logarithms of
activations from logits, which are finite.

Source: G. Hinton, S. Sabour, N. Frosst, "Matrix capsules with EM routing",
ICLR 2018, https://openreview.net/forum?id=HJWLfGWRb ("the paper" here).
"""

import dataclasses
from typing import Any

import numpy as np
from keras import ops

from .base_layers import (
    Pair,
    Shape,
    Tensor,
    TruncatedNormal,
    registered,
    require_shape,
)
from .matrix_votes import POSE_ENTRIES
from .mixture_routing import (
    EPSILON,
    MixtureLayer,
    Parents,
    PrimaryPoseLayer,
    fit_mixture,
)

NORMALIZATIONS = ("parents", "types", "positions")

# `beta_a` of `em_routing` is this times the weight: costs are in the hundreds,
# but Adam changes a weight only by about the learning rate at each step.
BETA_A_UNIT = 1000.0
KERNEL_STDDEV = 0.3


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
        code). They start at 1 / (number of the child's parents) with "parents",
        otherwise at 1 / (number of parent types).
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
    share of i that is assigned to j, at first 1 / O. The M-step is as follows,
    where sum_h is over the 16 pose entries and sum is over the children i of j:

      r_ij = R_ij a_i,  S_j = sum r_ij
      mu_j = (sum r_ij V_ij) / S_j
      var_j = (sum r_ij (V_ij - mu_j)^2) / S_j + min_variance
      a_j = sigmoid(lambda (beta_a - S_j sum_h (beta_u + log(var_j^h) / 2)))

    Between two M-steps, the E-step computes

      R_ij = a_j p_ij / (sum over parents k of a_k p_ik)

    where p_ij is the density of V_ij under the normal distribution of parent j.

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
    return fit_em(votes, activations, beta_u, beta_a, options, Parents())


def fit_em(votes, activations, beta_u, beta_a, options, parents):
    """`fit_mixture` as in `em_routing`."""
    beta_u, beta_a = (
        ops.reshape(ops.cast(beta, "float32"), (-1, 1))
        for beta in (beta_u, beta_a)
    )

    def fit(total, mean, scatter, iteration):
        variance = scatter / (total + EPSILON) + options.min_variance
        log_deviations = 0.5 * ops.sum(ops.log(variance), axis=-1)  # [O, N]
        cost = total[:, :, 0] * (POSE_ENTRIES * beta_u + log_deviations)
        growth = 1 - 0.95 ** (iteration + 1)
        logits = options.final_lambda * growth * (beta_a - cost)
        # The constant (2 pi)^-8 of p cancels in R.
        return 0.5 / variance, ops.log_sigmoid(logits) - log_deviations, logits

    steps = options.num_routing, options.damping
    return fit_mixture(votes, activations, fit, parents, *steps)


@registered
class PrimaryMatrixCapsules(PrimaryPoseLayer):
    """Primary capsules: a 1x1 convolution to poses and sigmoid activations.

    Weights, with C channels: `pose_weights` [C, I * 16] and
    `activation_weights` [C, I], initially truncated normal with stddev 0.5
    as in the authors' code; `pose_biases` and `activation_biases`, initially 0.

    Args:
      num_capsules: int, I, number of capsule types.

    Input shape: [B, H, W, C]. Output shapes: [B, H, W, I, 16], [B, H, W, I].
    """

    def build(self, input_shape: Shape) -> None:
        super().build(input_shape)
        for name, size in (
            ("pose", self.num_capsules * POSE_ENTRIES),
            ("activation", self.num_capsules),
        ):
            shape = input_shape[-1], size
            normal = TruncatedNormal(stddev=0.5)
            weights = self.add_weight(shape, normal, name=f"{name}_weights")
            biases = self.add_weight((size,), "zeros", name=f"{name}_biases")
            setattr(self, f"{name}_weights", weights)
            setattr(self, f"{name}_biases", biases)

    def call(self, inputs: Tensor) -> Pair:
        inputs = ops.cast(inputs, self.compute_dtype)
        poses = ops.matmul(inputs, self.pose_weights) + self.pose_biases
        logits = ops.matmul(inputs, self.activation_weights)
        logits = logits + self.activation_biases
        shape = (-1, *inputs.shape[1:3], self.num_capsules, POSE_ENTRIES)
        activations = ops.sigmoid(ops.cast(logits, "float32"))
        return ops.reshape(poses, shape), activations


class _EMRoutedLayer(MixtureLayer):
    def __init__(self, num_capsules, options, kernel_stddev, *window, **kwargs):
        super().__init__(num_capsules, *window, **kwargs)
        self.options = options
        self.kernel_stddev = kernel_stddev

    def build(self, input_shape: Shape) -> None:
        super().build(input_shape)
        shape = (self.num_capsules,)
        self.beta_u = self.add_weight(shape, "zeros", name="beta_u")
        self.beta_a = self.add_weight(shape, "zeros", name="beta_a")

    def _kernel_initializer(self, shape):
        return TruncatedNormal(stddev=self.kernel_stddev)

    def call(self, inputs: Pair) -> Pair:
        poses, logits = self._capsules(inputs)
        return ops.cast(poses, self.compute_dtype), ops.sigmoid(logits)

    def _constants(self):
        beta_a = ops.cast(self.beta_a, "float32") * BETA_A_UNIT
        return [ops.cast(self.beta_u, "float32"), beta_a]

    def _route_votes(self, *arguments):
        return fit_em(*arguments, self.options, self._parents())

    def get_config(self) -> dict[str, Any]:
        config = {**super().get_config(), **dataclasses.asdict(self.options)}
        if not self.kernel_size:  # `ClassMatrixCapsules` do not take it
            del config["normalise"]
        return {**config, "kernel_stddev": self.kernel_stddev}


@registered
class ConvMatrixCapsules(_EMRoutedLayer):
    """Convolutional matrix capsules, routed by EM.

    A parent sees the children at k x k positions. A vote is the pose of a child
    times a 4x4 matrix of `weights`. All parent positions share the weights.

    Weights, with I child types: `weights` [k, k, I, O, 4, 4], initially
    truncated normal with stddev `kernel_stddev`; `beta_u` and `beta_a` [O],
    initially 0. Routing uses 1000 * `beta_a`, to suit Adam's small steps.

    Args:
      num_capsules, kernel_size, strides, padding: see `WindowLayer`.
      num_routing, final_lambda, min_variance, damping, normalise: see
        `EMOptions`.
      kernel_stddev: float; 0.3 in the authors' code.

    Input and output: see `WindowLayer`. Poses have 16 atoms.
    """

    def __init__(
        self,
        num_capsules: int,
        kernel_size: int,
        strides: int = 1,
        padding: str = "VALID",
        num_routing: int = EMOptions.num_routing,
        final_lambda: float = EMOptions.final_lambda,
        min_variance: float = EMOptions.min_variance,
        damping: float = EMOptions.damping,
        normalise: str = EMOptions.normalise,
        kernel_stddev: float = KERNEL_STDDEV,
        **kwargs: Any,
    ):
        options = EMOptions(
            num_routing, final_lambda, min_variance, damping, normalise
        )
        first = num_capsules, options, kernel_stddev
        super().__init__(*first, kernel_size, strides, padding, **kwargs)

    def _parents(self):
        if self.options.normalise == "types":
            return Parents()
        by_type = self.options.normalise == "positions"
        return Parents(self._window, by_type, divide=not by_type)


@registered
class ClassMatrixCapsules(_EMRoutedLayer):
    """Class capsules, routed by EM: every child votes for every class.

    Children of a type use the same matrices at all positions. `coordinates`
    (the source's "coordinate addition") adds the position of a child, scaled to
    (0, 1), to its 4x4 votes: the row to entry [0, 3], the column to [1, 3].

    Weights: `weights` [I, O, 4, 4], and `beta_u` and `beta_a` [O], as in
    `ConvMatrixCapsules`.

    Args:
      num_capsules: int, O, number of classes.
      num_routing, final_lambda, min_variance, damping: see `EMOptions`.
      coordinates: bool, whether positions are added to votes.
      kernel_stddev: float, see `ConvMatrixCapsules`; 0.01 in the authors' code.

    Input: pair of poses [B, H, W, I, 16] and activations [B, H, W, I].
    Output: pair of poses [B, O, 16] and activations [B, O].
    """

    arguments = ("num_capsules", "coordinates")
    _shares_weights = True

    def __init__(
        self,
        num_capsules: int,
        num_routing: int = EMOptions.num_routing,
        final_lambda: float = EMOptions.final_lambda,
        min_variance: float = EMOptions.min_variance,
        damping: float = EMOptions.damping,
        coordinates: bool = True,
        kernel_stddev: float = KERNEL_STDDEV,
        **kwargs: Any,
    ):
        options = EMOptions(num_routing, final_lambda, min_variance, damping)
        super().__init__(num_capsules, options, kernel_stddev, **kwargs)
        self.coordinates = coordinates

    def _coordinates_along(self, size):
        return (np.arange(size) + 0.5) / size
