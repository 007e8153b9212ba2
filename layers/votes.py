"""Votes of input capsules for output capsules, as routing needs them.

Routing asks for three things: the sum of the votes over the input capsules,
their sum weighted by couplings, and their agreement with output capsules. How
votes are kept, in which order of axes and whether at all, is decided here.
The axes are named in routing.py. All kinds of votes have:

  outputs       tuple (O, A)
  outputs_axis  which axis of their couplings is O
  dtype         the type of the votes, and of the products with them
"""

import math

from keras import backend, ops

from .utils import Tensor, is_jax_on_cpu, is_on_cpu

# `LinearVotes` takes the outputs in at most so many blocks: one for each of
# 100 classes would make a graph of many thousand operations.
_MAX_BLOCKS = 16


class FormedVotes:
    """Votes [..., I, O, A] as they are; couplings are [..., O, I].

    In the order [..., O, I, A] both sums over votes are batched matrix
    products, which neither copy the votes nor write a product of their size.

    Args:
      votes: tensor [..., I, O, A].

    Raises:
      ValueError: if `votes` has less than three axes.
    """

    outputs_axis = -2

    def __init__(self, votes: Tensor):
        if len(votes.shape) < 3:
            raise ValueError(
                "votes must have the shape [..., inputs, outputs, atoms]. "
                f"Received: votes of shape {tuple(votes.shape)}"
            )
        self.outputs = tuple(votes.shape[-2:])
        self.dtype = votes.dtype
        self._votes = ops.swapaxes(votes, -3, -2)

    def couplings_shape(self):
        return ops.shape(self._votes)[:-1]

    def sum(self):
        """Over the input capsules: float32 [..., O, A]."""
        # A sum of the type bfloat16 would be rounded.
        return ops.sum(ops.cast(self._votes, "float32"), axis=-2)

    def agreement(self, capsules):
        """<votes, v>: [..., O, A] -> float32 [..., O, I]."""
        v = ops.expand_dims(ops.cast(capsules, self.dtype), -1)
        product = ops.matmul(self._votes, v)  # [..., O, I, 1]
        return ops.cast(ops.squeeze(product, axis=-1), "float32")

    def weighted_sum(self, couplings):
        """sum_I c * votes: [..., O, I] -> float32 [..., O, A]."""
        c = ops.expand_dims(ops.cast(couplings, self.dtype), -2)
        product = ops.matmul(c, self._votes)  # [..., O, 1, A]
        return ops.cast(ops.squeeze(product, axis=-2), "float32")


class LinearVotes:
    """Votes inputs @ weights, never formed; couplings are [O, B, I].

    Both sums over votes are products with the weights,

      sum over I of c * votes = (c * inputs) @ weights
      <votes, v> = <inputs, weights @ v>

    and the largest tensors have B * O * I * a numbers, not B * O * I * A.

    On CPUs TensorFlow and torch take the outputs in blocks, of one each up to
    `_MAX_BLOCKS` outputs: products of the size [B, a, I] stay in the cache,
    where those of all outputs at once would be written to memory and read
    again.

    Args:
      inputs: tensor [B, I, a], the input capsules of a atoms.
      weights: tensor [I, a, O * A].
      num_outputs: int, O.
    """

    outputs_axis = -3

    def __init__(self, inputs, weights, num_outputs: int):
        _, self._num_inputs, self._num_atoms = inputs.shape
        self.outputs = num_outputs, weights.shape[-1] // num_outputs
        self.dtype = inputs.dtype
        self._inputs = inputs
        # A variable would be cast at each use.
        self._weights = weights = ops.convert_to_tensor(weights)
        # From here on input atoms stand before input capsules: a coupling
        # then multiplies along rows, and products are summed over rows.
        inputs_by_atom = ops.transpose(inputs, (0, 2, 1))  # [B, a, I]
        num_blocks = _MAX_BLOCKS if is_on_cpu() else 1
        self._block_size = math.ceil(num_outputs / num_blocks)
        by_output = ops.reshape(weights, (*weights.shape[:2], *self.outputs))
        by_output = ops.reshape(  # [O, A, a * I]
            ops.transpose(by_output, (2, 3, 1, 0)), (*self.outputs, -1)
        )
        self._weight_blocks = self._blocks(by_output)
        self._input_blocks = _copies(inputs_by_atom, len(self._weight_blocks))

    def _blocks(self, by_output):
        """[O, ...] -> list of [outputs of a block, ...]."""
        starts = range(self._block_size, self.outputs[0], self._block_size)
        return ops.split(by_output, list(starts)) if starts else [by_output]

    def couplings_shape(self):
        return (self.outputs[0], ops.shape(self._inputs)[0], self._num_inputs)

    def sum(self):
        """Over the input capsules: float32 [B, O, A]."""
        size = self._num_inputs * self._num_atoms
        product = ops.matmul(
            ops.reshape(self._inputs, (-1, size)),
            ops.reshape(self._weights, (size, -1)),
        )
        return ops.cast(ops.reshape(product, (-1, *self.outputs)), "float32")

    def agreement(self, capsules):
        """<inputs, weights @ v>: [B, O, A] -> float32 [O, B, I]."""
        v = ops.cast(ops.transpose(capsules, (1, 0, 2)), self.dtype)
        agreement = self._of_blocks(self._agreement_of_block, v)
        return ops.cast(agreement, "float32")

    def _agreement_of_block(self, v, weights, inputs):
        product = ops.reshape(
            ops.matmul(v, weights),
            (v.shape[0], -1, self._num_atoms, self._num_inputs),
        )
        return ops.sum(product * inputs, axis=2)

    def weighted_sum(self, couplings):
        """(c * inputs) @ weights: [O, B, I] -> float32 [B, O, A]."""
        c = ops.expand_dims(ops.cast(couplings, self.dtype), 2)
        product = self._of_blocks(self._weighted_sum_of_block, c)
        return ops.cast(ops.transpose(product, (1, 0, 2)), "float32")

    def _weighted_sum_of_block(self, c, weights, inputs):
        weighted = ops.reshape(
            c * inputs,
            (c.shape[0], -1, self._num_atoms * self._num_inputs),
        )
        return ops.matmul(weighted, ops.swapaxes(weights, 1, 2))

    def _of_blocks(self, function, by_output):
        """What a function makes of each block of [O, ...], its weights, inputs.

        Joined along the first axis.
        """
        blocks = zip(
            self._blocks(by_output),
            self._weight_blocks,
            self._input_blocks,
            strict=True,
        )
        return ops.concatenate([function(*block) for block in blocks])


def _copies(numbers, count):
    """The same tensor `count` times; their gradients are summed in float32.

    A shorter type would round at every addition.
    """
    dtype = backend.standardize_dtype(numbers.dtype)
    if count > 1:
        numbers = ops.cast(numbers, backend.result_type(dtype, "float32"))
    return [ops.cast(numbers, dtype) for _ in range(count)]


def linear_votes(inputs, weights, num_outputs: int):
    """Votes inputs @ weights, kept as it is fastest here.

    XLA is slow on CPUs at sums over a few atoms: there the class capsules of
    the default network take 2.4 times as long if votes are not formed.

    Args:
      inputs: tensor [B, I, a], the input capsules of a atoms.
      weights: tensor [I, a, O * A].
      num_outputs: int, O.

    Returns:
      `LinearVotes` or `FormedVotes`.
    """
    if not is_jax_on_cpu():
        return LinearVotes(inputs, weights, num_outputs)
    votes = ops.matmul(ops.transpose(inputs, (1, 0, 2)), weights)
    votes = ops.reshape(votes, (*votes.shape[:2], num_outputs, -1))
    return FormedVotes(ops.transpose(votes, (1, 0, 2, 3)))


class SharedVotes:
    """Votes by weights that all input capsules share, never formed.

    votes[b, i] = inputs[b, i] @ weights; couplings are [B, O, I]. No weight
    mentions I, which may be unknown and another in each call:

      sum over I of c * votes = (sum over I of c * inputs) @ weights
      <votes, v> = <inputs, weights @ v>

    An iteration multiplies 2 * I * a * O + 2 * a * O * A numbers; to form the
    votes would take I * a * O * A.

    Args:
      inputs: tensor [B, I, a], the input capsules of a atoms.
      weights: tensor [1, a, O * A].
      num_outputs: int, O.
    """

    outputs_axis = -2

    def __init__(self, inputs, weights, num_outputs: int):
        self.outputs = num_outputs, weights.shape[-1] // num_outputs
        self.dtype = inputs.dtype
        self._inputs = inputs
        by_output = ops.reshape(weights, (-1, *self.outputs))
        self._weights = ops.transpose(by_output, (1, 0, 2))  # [O, a, A]

    def couplings_shape(self):
        batch, num_inputs, _ = ops.shape(self._inputs)
        return (batch, self.outputs[0], num_inputs)

    def sum(self):
        """Over the input capsules: float32 [B, O, A]."""
        # In float32: bfloat16 would round at every addition.
        total = ops.sum(ops.cast(self._inputs, "float32"), axis=1)
        total = ops.cast(total, self.dtype)
        product = ops.matmul(total, self._weights)  # [O, B, A]
        return ops.cast(ops.transpose(product, (1, 0, 2)), "float32")

    def agreement(self, capsules):
        """<inputs, weights @ v>: [B, O, A] -> float32 [B, O, I]."""
        v = ops.cast(ops.transpose(capsules, (1, 0, 2)), self.dtype)
        product = ops.matmul(v, ops.swapaxes(self._weights, 1, 2))
        product = ops.transpose(product, (1, 0, 2))  # [B, O, a]
        agreement = ops.matmul(product, ops.swapaxes(self._inputs, 1, 2))
        return ops.cast(agreement, "float32")

    def weighted_sum(self, couplings):
        """(c * inputs) @ weights: [B, O, I] -> float32 [B, O, A]."""
        c = ops.cast(couplings, self.dtype)
        weighted = ops.transpose(ops.matmul(c, self._inputs), (1, 0, 2))
        product = ops.matmul(weighted, self._weights)  # [O, B, A]
        return ops.cast(ops.transpose(product, (1, 0, 2)), "float32")


Votes = FormedVotes | LinearVotes | SharedVotes
