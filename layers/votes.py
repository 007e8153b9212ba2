"""Votes of input capsules for output capsules, and the sums routing needs."""

import math
from typing import Any, Protocol

from keras import backend, ops

from .backends import is_on_cpu
from .base_layers import Tensor


class Votes(Protocol):
    """What `route` needs of votes; routing.py names the axes.

    `outputs` is (O, A), `outputs_axis` is the index of axis O in couplings, and
    `dtype` is the dtype of the votes. Each class says the axes of couplings.
    """

    outputs: tuple[int, int]
    outputs_axis: int
    dtype: Any

    def sum(self) -> Tensor:
        """The sum over I of the votes: float32 [..., O, A]."""

    def weighted_sum(self, couplings: Tensor) -> Tensor:
        """The sum over I of couplings times votes: float32 [..., O, A]."""

    def agreement(self, capsules: Tensor) -> Tensor:
        """Dot products of votes with `capsules`: float32, as couplings."""


class FormedVotes:
    """Votes given as a tensor [..., I, O, A]. Couplings are [..., O, I]."""

    outputs_axis = -2

    def __init__(self, votes: Tensor):
        self.outputs = tuple(votes.shape[-2:])
        self.dtype = backend.result_type(votes.dtype, float)
        votes = ops.cast(votes, self.dtype)
        # [..., O, I, A], so that both products are batched matrix products.
        self._votes = ops.swapaxes(votes, -3, -2)

    def sum(self) -> Tensor:
        # A sum in bfloat16 would round every addition.
        return ops.sum(ops.cast(self._votes, "float32"), axis=-2)

    def agreement(self, capsules: Tensor) -> Tensor:
        v = ops.expand_dims(ops.cast(capsules, self.dtype), -1)
        product = ops.matmul(self._votes, v)  # [..., O, I, 1]
        return ops.cast(ops.squeeze(product, axis=-1), "float32")

    def weighted_sum(self, couplings: Tensor) -> Tensor:
        c = ops.expand_dims(ops.cast(couplings, self.dtype), -2)
        product = ops.matmul(c, self._votes)  # [..., O, 1, A]
        return ops.cast(ops.squeeze(product, axis=-2), "float32")


class LinearVotes:
    """Stands for the votes `inputs @ weights` but never forms them.

    Inputs are [B, I, a], weights [I, a, O * A], couplings [O, B, I], and

      sum over I of c * votes = (c * inputs) @ weights
      <votes, v> = <inputs, weights @ v>

    so the largest tensors have B * O * I * a entries, not B * O * I * A. On
    CPUs the O output capsules are split into at most 16 blocks, whose tensors
    fit into the cache.
    """

    outputs_axis = -3

    def __init__(self, inputs: Tensor, weights: Tensor, num_outputs: int):
        _, self._num_inputs, self._num_atoms = inputs.shape
        self.outputs = num_outputs, weights.shape[-1] // num_outputs
        self.dtype = inputs.dtype
        self._inputs = inputs
        # A variable would be cast again at every use.
        self._weights = weights = ops.convert_to_tensor(weights)
        # Input capsules are the last axis, so that products with couplings
        # and sums over atoms are vectorized.
        inputs_by_atom = ops.transpose(inputs, (0, 2, 1))  # [B, a, I]
        num_blocks = 16 if is_on_cpu() else 1
        self._block_size = math.ceil(num_outputs / num_blocks)
        by_output = ops.reshape(weights, (*weights.shape[:2], *self.outputs))
        by_output = ops.transpose(by_output, (2, 3, 1, 0))
        by_output = ops.reshape(by_output, (*self.outputs, -1))  # [O, A, a * I]
        self._weight_blocks = self._blocks(by_output)
        self._input_blocks = _copies(inputs_by_atom, len(self._weight_blocks))

    def _blocks(self, by_output):
        starts = range(self._block_size, self.outputs[0], self._block_size)
        return ops.split(by_output, list(starts)) if starts else [by_output]

    def sum(self) -> Tensor:
        size = self._num_inputs * self._num_atoms
        inputs = ops.reshape(self._inputs, (-1, size))
        weights = ops.reshape(self._weights, (size, -1))
        product = ops.matmul(inputs, weights)  # [B, O * A]
        return ops.cast(ops.reshape(product, (-1, *self.outputs)), "float32")

    def agreement(self, capsules: Tensor) -> Tensor:
        v = ops.cast(ops.transpose(capsules, (1, 0, 2)), self.dtype)
        agreement = self._map_blocks(self._agreement_of_block, v)
        return ops.cast(agreement, "float32")

    def _agreement_of_block(self, v, weights, inputs):
        shape = v.shape[0], -1, self._num_atoms, self._num_inputs
        product = ops.reshape(ops.matmul(v, weights), shape)
        return ops.sum(product * inputs, axis=2)

    def weighted_sum(self, couplings: Tensor) -> Tensor:
        c = ops.expand_dims(ops.cast(couplings, self.dtype), 2)
        product = self._map_blocks(self._weighted_sum_of_block, c)
        return ops.cast(ops.transpose(product, (1, 0, 2)), "float32")

    def _weighted_sum_of_block(self, c, weights, inputs):
        shape = c.shape[0], -1, self._num_atoms * self._num_inputs
        weighted = ops.reshape(c * inputs, shape)
        return ops.matmul(weighted, ops.swapaxes(weights, 1, 2))

    def _map_blocks(self, function, by_output):
        """Calls function(block of [O, ...], weights, inputs) for each block."""
        blocks = self._weight_blocks, self._input_blocks
        results = map(function, self._blocks(by_output), *blocks)
        return ops.concatenate(list(results))


def _copies(tensor, count):
    """The same tensor `count` times; their gradients are summed in float32."""
    dtype = backend.standardize_dtype(tensor.dtype)
    if count > 1:
        tensor = ops.cast(tensor, backend.result_type(dtype, "float32"))
    return [ops.cast(tensor, dtype) for _ in range(count)]


def linear_votes(inputs: Tensor, weights: Tensor, num_outputs: int) -> Votes:
    """Returns `LinearVotes`, or for JAX on CPUs the faster `FormedVotes`.

    On CPUs XLA is slow at the short sums over atoms in `LinearVotes`: the class
    capsules of the default network would take 2.4 times as long.
    """
    if not is_on_cpu("jax"):
        return LinearVotes(inputs, weights, num_outputs)
    votes = ops.matmul(ops.transpose(inputs, (1, 0, 2)), weights)
    outputs = num_outputs, weights.shape[-1] // num_outputs
    votes = ops.reshape(votes, (*votes.shape[:2], *outputs))
    return FormedVotes(ops.transpose(votes, (1, 0, 2, 3)))  # [B, I, O, A]


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
