"""Votes with weights that all input capsules share, as in Su's network."""

from keras import ops

from .base_layers import Tensor


class SharedVotes:
    """Votes with weights that all input capsules share. Couplings: [B, O, I].

    Inputs are [B, I, a] and weights [1, a, O * A]; I may be unknown. The votes
    are never formed:

      sum over I of c * votes = (sum over I of c * inputs) @ weights
      <votes, v> = <inputs, weights @ v>
    """

    outputs_axis = -2

    def __init__(self, inputs: Tensor, weights: Tensor, num_outputs: int):
        self.outputs = num_outputs, weights.shape[-1] // num_outputs
        self.dtype = inputs.dtype
        self._inputs = inputs
        by_output = ops.reshape(weights, (-1, *self.outputs))
        self._weights = ops.transpose(by_output, (1, 0, 2))  # [O, a, A]

    def sum(self) -> Tensor:
        total = ops.sum(ops.cast(self._inputs, "float32"), axis=1)
        total = ops.cast(total, self.dtype)  # [B, a]
        product = ops.matmul(total, self._weights)  # [O, B, A]
        return ops.cast(ops.transpose(product, (1, 0, 2)), "float32")

    def agreement(self, capsules: Tensor) -> Tensor:
        v = ops.cast(ops.transpose(capsules, (1, 0, 2)), self.dtype)
        product = ops.matmul(v, ops.swapaxes(self._weights, 1, 2))
        product = ops.transpose(product, (1, 0, 2))  # [B, O, a]
        agreement = ops.matmul(product, ops.swapaxes(self._inputs, 1, 2))
        return ops.cast(agreement, "float32")

    def weighted_sum(self, couplings: Tensor) -> Tensor:
        c = ops.cast(couplings, self.dtype)
        weighted = ops.transpose(ops.matmul(c, self._inputs), (1, 0, 2))
        product = ops.matmul(weighted, self._weights)  # [O, B, A]
        return ops.cast(ops.transpose(product, (1, 0, 2)), "float32")
