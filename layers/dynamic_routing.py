"""Routing by agreement of votes that are given as a tensor."""

from .base_layers import Tensor, require_shape
from .routing import RoutingRule, couplings_of, route
from .votes import FormedVotes


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
