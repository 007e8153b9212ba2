"""Routing by agreement, squashing and capsule lengths: pure functions.

Axes are named as in the paper and in this order, atoms always last:

  B  batch (and, for convolutional capsules, positions: any leading axes)
  I  input capsules
  O  output capsules
  A  atoms of an output capsule

The iterations are written once, in `_iterations`. What differs between
routings is given: the votes (see votes.py), the biases, and a `RoutingRule`.

Source: S. Sabour, N. Frosst, G. Hinton, "Dynamic Routing Between Capsules",
NIPS 2017, https://arxiv.org/abs/1710.09829 ("the paper" in this package).
"""

import dataclasses
from typing import Literal

import keras
from keras import ops

from .utils import Tensor
from .votes import FormedVotes, Votes

# Added to the squared length under the reciprocal square root. It makes value
# and gradient exactly 0 for a zero capsule and stays below float32 rounding
# for every length >= 1e-4.
_EPSILON = 1e-16


def _squared_length_and_reciprocal(capsules, epsilon=0.0):
    """|s|^2 and 1/|s| over the atoms, kept as an axis of size 1, in float32."""
    squared = ops.sum(ops.square(capsules), axis=-1, keepdims=True)
    if epsilon:
        squared = squared + epsilon
    return squared, ops.rsqrt(squared + _EPSILON)


def squash(
    capsules: Tensor, constant: float = 1.0, epsilon: float = 0.0
) -> Tensor:
    """Shrinks each capsule to a length below 1 and keeps its direction.

    v = |s|^2 / (constant + |s|^2) * s / |s|, with 1 the paper's equation 1.

    The reference divides by |s| unguarded and gives NaN for a zero capsule;
    here its value and its gradient are 0.

    Args:
      capsules: tensor [..., A].
      constant: float > 0, the squared length that is squashed to 1/2.
      epsilon: float >= 0, added to |s|^2 wherever it stands. J. Su's code has
        1e-7, which lengthens capsules of |s| = 0.001 by 5%.

    Returns:
      Tensor of the same shape and type. The norm is computed in float32.
    """
    s = ops.cast(capsules, "float32")
    squared, reciprocal = _squared_length_and_reciprocal(s, epsilon)
    squashed = squared / (constant + squared) * reciprocal * s
    return ops.cast(squashed, capsules.dtype)


def lengths(capsules: Tensor) -> Tensor:
    """Euclidean length of each capsule: the probability that its entity exists.

    Args:
      capsules: tensor [..., A].

    Returns:
      float32 tensor [...]. A zero capsule has length 0 and gradient 0, where
      the plain norm (and the reference) has a gradient of NaN.
    """
    squared, reciprocal = _squared_length_and_reciprocal(
        ops.cast(capsules, "float32")
    )
    return ops.squeeze(squared * reciprocal, axis=-1)


def leaky_softmax(logits: Tensor, axis: int = -1) -> Tensor:
    """Softmax with one extra logit, fixed at 0, whose share is dropped.

    The dropped share goes to no output capsule, so an input capsule may be
    routed nowhere: the couplings sum to less than 1.

    Args:
      logits: float tensor; `axis` runs over the output capsules.
      axis: int, the axis to normalise over.

    Returns:
      Tensor of the shape and type of `logits`.
    """
    return _softmax(ops.convert_to_tensor(logits), axis, leaky=True)


def _softmax(logits, axis, leaky):
    """exp(l_o) / sum_o exp(l_o), the sum with exp(0) more if leaky.

    Written out also where a backend has a softmax of its own: over an axis
    that is not the last, TensorFlow's takes three times as long.
    """
    # The largest logit, the fixed one included, is taken off for stability.
    largest = ops.max(logits, axis=axis, keepdims=True)
    if leaky:
        largest = ops.maximum(largest, 0.0)
    largest = ops.stop_gradient(largest)
    exponentials = ops.exp(logits - largest)
    total = ops.sum(exponentials, axis=axis, keepdims=True)
    if leaky:
        total = total + ops.exp(-largest)
    return exponentials / total


@keras.saving.register_keras_serializable(package="capsules")
@dataclasses.dataclass(frozen=True)
class RoutingRule:
    """What one routing by agreement does otherwise than another.

    A rule of one's own is a subclass that overrides `couplings`, `squash` or
    `compared`, decorated by `keras.saving.register_keras_serializable` so that
    layers with it can be saved; what it knows beside is a dataclass's field, or
    its own `get_config` gives it. The defaults are the paper's. J. Su's of 2018
    (https://kexue.fm/archives/4819 and 5112) replace the logits, the later with
    compare="direction".

    Attributes:
      leaky: whether couplings come from `leaky_softmax`.
      logits: whether agreements are added to the logits or replace them. Two
        iterations cannot tell: the logits are 0 before the second.
      compare: what votes are compared with: the squashed sum v, or the
        direction s / |s| of the sum.
      squash_constant: `constant` of `squash`.
      squash_epsilon: `epsilon` of `squash`.
    """

    leaky: bool = False
    logits: Literal["add", "replace"] = "add"
    compare: Literal["squashed", "direction"] = "squashed"
    squash_constant: float = 1.0
    squash_epsilon: float = 0.0

    def __post_init__(self):
        for name, choices in {
            "logits": ("add", "replace"),
            "compare": ("squashed", "direction"),
        }.items():
            if getattr(self, name) not in choices:
                raise ValueError(
                    f"{name} must be one of {choices}. "
                    f"Received: {getattr(self, name)!r}"
                )
        # With 0 a zero capsule has no length, below it one above 1.
        if not (self.squash_constant > 0 and self.squash_epsilon >= 0):
            raise ValueError(
                "squash_constant must be above 0 and squash_epsilon not below. "
                f"Received: {self.squash_constant!r}, {self.squash_epsilon!r}"
            )

    def get_config(self):
        return dataclasses.asdict(self)

    @classmethod
    def from_config(cls, config):
        return cls(**config)

    def couplings(self, logits, axis):
        """The couplings of float32 logits; `axis` runs over the outputs.

        Of equal logits each is 1 / (O + leaky), which the first iteration,
        whose logits are zeros, does not ask for.
        """
        return _softmax(logits, axis, self.leaky)

    def squash(self, s):
        """The output capsules of the sums s."""
        return squash(s, self.squash_constant, self.squash_epsilon)

    def compared(self, s):
        """What votes are compared with, given the sums s."""
        if self.compare == "squashed":
            return self.squash(s)
        squared = ops.sum(ops.square(s), axis=-1, keepdims=True)
        return s * ops.rsqrt(ops.maximum(squared, 1e-12))


PAPER = RoutingRule()


def route(
    votes: Votes,
    biases: Tensor | None = None,
    num_routing: int = 3,
    rule: RoutingRule = PAPER,
) -> Tensor:
    """Routing by agreement of any votes and by any rule.

    With logits b = 0 at the start, each iteration computes

      c = softmax(b) over O               couplings
      s = sum over I of c * votes + bias
      b = b + <votes, squash(s)>          agreement, as the rule says

    and the result is squash(s) of the last. Gradients flow through all of
    them. With one iteration the couplings are 1/O, or 1/(O + 1) if leaky.

    Args:
      votes: `FormedVotes`, `LinearVotes` or `SharedVotes`, see votes.py.
      biases: tensor [O, A], or None.
      num_routing: int >= 1, the number of iterations.
      rule: `RoutingRule`.

    Returns:
      Tensor [..., O, A] of the type of the votes: the output capsules. Logits,
      couplings and norms are float32.

    Raises:
      ValueError: if `num_routing` is less than 1, or the shape of `biases` is
        not that of the output capsules.
    """
    *_, (_, s) = _iterations(votes, biases, num_routing, rule)
    return ops.cast(rule.squash(s), votes.dtype)


def couplings_of(votes, biases, num_routing: int, rule: RoutingRule):
    """The couplings c of every iteration of `route`.

    Args and raises: as `route`.

    Returns:
      float32 tensor [num_routing, ..., I, O]. Over O the couplings sum to 1,
      or to less if leaky.
    """
    couplings, _ = zip(
        *_iterations(votes, biases, num_routing, rule), strict=True
    )
    # Of the first iteration only the number that all of them are is known.
    shape = votes.couplings_shape()
    stacked = ops.stack([ops.broadcast_to(c, shape) for c in couplings])
    return ops.moveaxis(stacked, votes.outputs_axis, -1)


def _iterations(votes, biases, num_routing, rule):
    """Yields the couplings and the float32 sums s [..., O, A] of each.

    Couplings are float32 in the order of axes of `votes`, of the first
    iteration a float.
    """
    if num_routing < 1:
        raise ValueError(
            f"num_routing must be at least 1. Received: {num_routing}"
        )
    if biases is not None and tuple(biases.shape) != votes.outputs:
        raise ValueError(
            "biases must have the shape [outputs, atoms] of the votes, "
            f"{votes.outputs}. Received: {tuple(biases.shape)}"
        )
    bias = 0.0 if biases is None else ops.cast(biases, "float32")

    # The softmax of zeros is known: no need to multiply by it vote by vote.
    couplings = 1.0 / (votes.outputs[0] + rule.leaky)
    s = votes.sum() * couplings + bias
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
    """Routing by agreement, procedure 1 of the paper: see `route`.

    The bias is inside every iteration, as in the reference (the paper has no
    bias).

    Args:
      votes: tensor [..., I, O, A], the prediction of each input capsule for
        each output capsule.
      biases: tensor [O, A].
      num_routing: int >= 1, the number of iterations.
      leaky: bool, whether couplings come from `leaky_softmax`.

    Returns:
      Tensor [..., O, A] of the type of `votes`: the output capsules.

    Raises:
      ValueError: as `route`, and if `votes` has less than three axes.
    """
    return route(FormedVotes(votes), biases, num_routing, RoutingRule(leaky))


def routing_couplings(
    votes: Tensor, biases: Tensor, num_routing: int = 3, leaky: bool = False
) -> Tensor:
    """The couplings c of every iteration of `dynamic_routing`.

    Args and raises: as `dynamic_routing`.

    Returns:
      float32 tensor [num_routing, ..., I, O].
    """
    return couplings_of(
        FormedVotes(votes), biases, num_routing, RoutingRule(leaky)
    )
