"""Routing by agreement, squashing and capsule lengths: pure functions.

The axes, in the order in which votes [..., I, O, A] have them:

  B  batch and, for convolutional capsules, positions; also written `...`
  I  input capsules
  O  output capsules
  A  atoms of an output capsule

Source: S. Sabour, N. Frosst, G. Hinton, "Dynamic Routing Between Capsules",
NIPS 2017, https://arxiv.org/abs/1710.09829 ("the paper" in this package).
"""

import dataclasses
from typing import Any, Literal, get_args, get_origin

import keras
from keras import ops

from .base_layers import (
    EPSILON,
    Shape,
    Tensor,
    largest,
    registered,
    require_shape,
)
from .votes import FormedVotes, Votes


def squash(
    capsules: Tensor,
    constant: float = 1.0,
    epsilon: float = 0.0,
    root_epsilon: float = EPSILON,
    axis: int | tuple[int, ...] = -1,
) -> Tensor:
    """Shrinks each capsule to a length below 1 and keeps its direction.

    A capsule s becomes |s|^2 / (constant + |s|^2) * s / |s|: equation 1 of the
    paper, if constant is 1. For s = 0 the value is 0, as is the gradient with
    epsilon 0; the reference gives NaN. Lengths are computed in float32.

    Args:
      capsules: tensor [..., A].
      constant: float > 0, the squared length that is squashed to length 1/2.
      epsilon: float >= 0, added to each |s|^2; 1e-7 in J. Su's code.
      root_epsilon: float > 0, also added to |s|^2, but only in the divisor |s|.
      axis: the axis or axes of the atoms.
    """
    s = ops.cast(capsules, "float32")
    squared = ops.sum(ops.square(s), axis=axis, keepdims=True) + epsilon
    reciprocal = ops.rsqrt(squared + root_epsilon)  # 1 / |s|
    squashed = squared / (constant + squared) * reciprocal * s
    dtype = keras.backend.result_type(capsules.dtype, float)  # of ints, float32
    return ops.cast(squashed, dtype)


def lengths(capsules: Tensor) -> Tensor:
    """Euclidean lengths of capsules, [..., A] -> float32 [...].

    The gradient for a zero capsule is 0, not NaN.
    """
    squared = ops.sum(ops.square(ops.cast(capsules, "float32")), axis=-1)
    return squared * ops.rsqrt(squared + EPSILON)


def leaky_softmax(logits: Tensor, axis: int = -1) -> Tensor:
    """Softmax with an additional logit of 0, whose output is dropped.

    Logits l give c_o = exp(l_o) / (1 + sum_k exp(l_k)). Their sum over `axis`
    is less than 1, so an input capsule may be routed to no output capsule.
    """
    return softmax(ops.convert_to_tensor(logits), axis, leaky=True)


def softmax(logits, axis, leaky=False):
    """Softmax, leaky or not. `tf.nn.softmax` is slow if axis is not last."""
    maxima = largest(logits, axis)
    if leaky:
        maxima = ops.maximum(maxima, 0.0)
    maxima = ops.stop_gradient(maxima)
    exponentials = ops.exp(logits - maxima)
    total = ops.sum(exponentials, axis=axis, keepdims=True)
    if leaky:
        total = total + ops.exp(-maxima)
    return exponentials / total


@registered
@dataclasses.dataclass(frozen=True)
class RoutingRule:
    """Options of routing by agreement. The defaults are the paper's routing.

    J. Su's first routing (https://kexue.fm/archives/4819, 2018) has
    logits="replace". His second (.../archives/5112) adds compare="direction".

    Another rule is a frozen dataclass, derived from this class, that overrides
    `couplings`, `first_coupling`, `squash` or `compared`. Decorate it with
    `keras.saving.register_keras_serializable`. Its fields are its parameters.

    Attributes:
      leaky: whether couplings come from `leaky_softmax`.
      logits: "add": each iteration adds its agreements to the logits;
        "replace": the agreements become the logits. The two choices differ
        from the third iteration on.
      compare: what an agreement compares votes with: "squashed": squash(s),
        or "direction": s / |s|, with the sum s that `route` defines.
      squash_constant: float > 0, `constant` of `squash`.
      squash_epsilon: float >= 0, `epsilon` of `squash`.
    """

    leaky: bool = False
    logits: Literal["add", "replace"] = "add"
    compare: Literal["squashed", "direction"] = "squashed"
    squash_constant: float = 1.0
    squash_epsilon: float = 0.0

    def __post_init__(self):
        for field in dataclasses.fields(self):
            choices = get_args(field.type)
            is_literal = get_origin(field.type) is Literal
            if is_literal and getattr(self, field.name) not in choices:
                raise ValueError(
                    f"`{field.name}` must be one of {choices}. Received: {self}"
                )

    def get_config(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "RoutingRule":
        return cls(**config)

    def couplings(self, logits: Tensor, axis: int | tuple[int, ...]) -> Tensor:
        """Couplings of float32 logits; `axis` runs over the output capsules.

        Not called in the first iteration, which uses `first_coupling`.
        """
        return softmax(logits, axis, self.leaky)

    def first_coupling(self, shape: Shape) -> float:
        """Coupling of all votes in iteration 1; `shape` is [..., O, A]."""
        return 1.0 / (shape[-2] + self.leaky)

    def squash(self, s: Tensor) -> Tensor:
        """Squashes the sums s [..., O, A] to output capsules."""
        return squash(s, self.squash_constant, self.squash_epsilon)

    def compared(self, s: Tensor) -> Tensor:
        """Vectors that votes are compared with, given sums s [..., O, A]."""
        if self.compare == "squashed":
            return self.squash(s)
        squared = ops.sum(ops.square(s), axis=-1, keepdims=True)
        return s * ops.rsqrt(ops.maximum(squared, 1e-12))


def route(
    votes: Votes,
    biases: Tensor | None = None,
    num_routing: int = 3,
    rule: RoutingRule | None = None,
) -> Tensor:
    """Routing by agreement, by default procedure 1 of the paper.

    Logits b start at 0. With the default rule each iteration computes

      c = softmax(b) over O               couplings
      s = sum over I of c * votes + bias
      b = b + <votes, squash(s)>          agreement

    and the result is squash(s) of the last iteration. Gradients flow through
    all iterations. The bias is from the reference; the paper has none.

    Args:
      votes: `FormedVotes`, `LinearVotes` or `SharedVotes`, see votes.py.
      biases: tensor [O, A], or None.
      num_routing: int >= 1, number of iterations.
      rule: `RoutingRule`; None for the paper's.

    Returns:
      Tensor [..., O, A] of the dtype of the votes: the output capsules.
      Logits, couplings and lengths are computed in float32.
    """
    rule = rule or RoutingRule()
    *_, (_, s) = _iterations(votes, biases, num_routing, rule)
    return ops.cast(rule.squash(s), votes.dtype)


def couplings_of(votes, biases, num_routing: int, rule: RoutingRule):
    """Couplings of all iterations of `route`: [num_routing, ..., I, O]."""
    iterations = _iterations(votes, biases, num_routing, rule)
    couplings, sums = zip(*iterations, strict=True)
    # The couplings of the first iteration are a single number.
    shape = ops.shape(votes.agreement(sums[0]))
    stacked = ops.stack([ops.broadcast_to(c, shape) for c in couplings])
    return ops.moveaxis(stacked, votes.outputs_axis, -1)


def _iterations(votes, biases, num_routing, rule):
    """Yields the couplings, first a float, and float32 sums s [..., O, A]."""
    if num_routing < 1:
        raise ValueError(
            f"`num_routing` must be at least 1. Received: {num_routing}"
        )
    bias = 0.0 if biases is None else ops.cast(biases, "float32")

    # The softmax of zero logits is known and is the same for all votes.
    total = votes.sum()
    couplings = rule.first_coupling(total.shape)
    s = total * couplings + bias
    yield couplings, s
    logits = None
    for _ in range(num_routing - 1):
        agreement = votes.agreement(rule.compared(s))
        if logits is None or rule.logits == "replace":
            logits = agreement
        else:
            logits = logits + agreement
        couplings = rule.couplings(logits, votes.outputs_axis)
        s = votes.weighted_sum(couplings) + bias
        yield couplings, s


def dynamic_routing(
    votes: Tensor, biases: Tensor, num_routing: int = 3, leaky: bool = False
) -> Tensor:
    """`route` for votes that are given as a tensor.

    Args:
      votes: tensor [..., I, O, A].
      biases: tensor [O, A].
      num_routing: int >= 1, number of iterations.
      leaky: bool, whether couplings come from `leaky_softmax`.

    Returns:
      Tensor [..., O, A] of the dtype of `votes`.
    """
    formed = FormedVotes(votes)
    require_shape("biases", biases, formed.outputs)
    return route(formed, biases, num_routing, RoutingRule(leaky))


def routing_couplings(
    votes: Tensor, biases: Tensor, num_routing: int = 3, leaky: bool = False
) -> Tensor:
    """Couplings of `dynamic_routing`: float32 [num_routing, ..., I, O]."""
    formed = FormedVotes(votes)
    require_shape("biases", biases, formed.outputs)
    return couplings_of(formed, biases, num_routing, RoutingRule(leaky))
