"""Routing by agreement, squashing and capsule lengths: pure functions.

Axes are named as in the paper and in this order, atoms always last:

  B  batch (and, for convolutional capsules, positions: any leading axes)
  I  input capsules
  O  output capsules
  A  atoms of an output capsule

Source: S. Sabour, N. Frosst, G. Hinton, "Dynamic Routing Between Capsules",
NIPS 2017, https://arxiv.org/abs/1710.09829 ("the paper" in this package).
"""

import math

from keras import backend, ops

from layers.hardware import is_tensorflow_on_cpu

# Added to the squared length under the reciprocal square root. It makes value
# and gradient exactly 0 for a zero capsule and stays below float32 rounding
# for every length >= 1e-4.
_EPSILON = 1e-16

# `linear_routing` takes the outputs in at most so many blocks: one for each of
# 100 classes would make a graph of many thousand operations.
_MAX_BLOCKS = 16


def _squared_length_and_reciprocal(capsules):
    """|s|^2 and 1/|s| over the atoms, kept as an axis of size 1, in float32."""
    squared = ops.sum(ops.square(capsules), axis=-1, keepdims=True)
    return squared, ops.rsqrt(squared + _EPSILON)


def squash(capsules):
    """Shrinks each capsule to a length below 1 and keeps its direction.

    v = |s|^2 / (1 + |s|^2) * s / |s|, the paper's equation 1.

    The reference divides by |s| unguarded and gives NaN for a zero capsule;
    here its value and its gradient are 0.

    Args:
      capsules: tensor [..., A].

    Returns:
      Tensor of the same shape and type. The norm is computed in float32.
    """
    s = ops.cast(capsules, "float32")
    squared, reciprocal = _squared_length_and_reciprocal(s)
    squashed = squared / (1.0 + squared) * reciprocal * s
    return ops.cast(squashed, capsules.dtype)


def lengths(capsules):
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


def leaky_softmax(logits, axis=-1):
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


def dynamic_routing(votes, biases, num_routing=3, leaky=False):
    """Routing by agreement, procedure 1 of the paper.

    With b = 0 at the start, each iteration computes

      c = softmax(b) over O               couplings (or `leaky_softmax`)
      s = sum over I of c * votes + bias
      v = squash(s)
      b = b + <votes, v>                  agreement

    The bias is inside every iteration and gradients flow through all of them,
    as in the reference (the paper has no bias). With one iteration the
    couplings are 1/O, or 1/(O + 1) if leaky.

    Args:
      votes: tensor [..., I, O, A], the prediction of each input capsule for
        each output capsule.
      biases: tensor [O, A].
      num_routing: int >= 1, the number of iterations.
      leaky: bool, whether couplings come from `leaky_softmax`.

    Returns:
      Tensor [..., O, A] of the type of `votes`: the output capsules of the
      last iteration. Logits, couplings and norms are float32.

    Raises:
      ValueError: if `num_routing` is less than 1, or the last two axes of
        `votes` are not those of `biases`.
    """
    formed = _FormedVotes(votes, biases)
    capsules, _ = _route(formed, biases, num_routing, leaky)
    return ops.cast(capsules, votes.dtype)


def routing_couplings(votes, biases, num_routing=3, leaky=False):
    """The couplings c of every iteration of `dynamic_routing`.

    Args and raises: as `dynamic_routing`.

    Returns:
      float32 tensor [num_routing, ..., I, O]. Over O the couplings sum to 1,
      or to less if leaky.
    """
    formed = _FormedVotes(votes, biases)
    return _stacked_couplings(formed, biases, num_routing, leaky)


def linear_routing(inputs, weights, biases, num_routing=3, leaky=False):
    """`dynamic_routing` of votes that are linear in the input capsules.

    The votes inputs[b, i, :] @ weights[i, :, o, :] are never formed: both
    sums over them are products with the weights,

      sum over I of c * votes = (c * inputs) @ weights
      <votes, v> = <inputs, weights @ v>

    and the largest tensors have B * O * I * a numbers, not B * O * I * A.

    Args:
      inputs: tensor [B, I, a], the input capsules of a atoms.
      weights: tensor [I, a, O * A].
      biases: tensor [O, A].
      num_routing: int >= 1, the number of iterations.
      leaky: bool, whether couplings come from `leaky_softmax`.

    Returns:
      Tensor [B, O, A] of the type of `inputs`, otherwise as
      `dynamic_routing`.

    Raises:
      ValueError: if `num_routing` is less than 1.
    """
    linear = _LinearVotes(inputs, weights, biases)
    capsules, _ = _route(linear, biases, num_routing, leaky)
    return ops.cast(capsules, inputs.dtype)


def linear_routing_couplings(
    inputs, weights, biases, num_routing=3, leaky=False
):
    """The couplings c of every iteration of `linear_routing`.

    Args and raises: as `linear_routing`.

    Returns:
      float32 tensor [num_routing, B, I, O].
    """
    linear = _LinearVotes(inputs, weights, biases)
    return _stacked_couplings(linear, biases, num_routing, leaky)


def _route(votes, biases, num_routing, leaky):
    """Routing by agreement, see `dynamic_routing`.

    `votes` is `_FormedVotes` or `_LinearVotes`.

    Returns:
      Tuple of the float32 output capsules [..., O, A] of the last iteration,
      and the list of each iteration's couplings: float32 in the order of axes
      of `votes`, of the first iteration a float.
    """
    if num_routing < 1:
        raise ValueError(
            f"num_routing must be at least 1. Received: {num_routing}"
        )
    num_outputs = biases.shape[0]
    biases = ops.cast(biases, "float32")

    # The softmax of zeros is known: no need to multiply by it vote by vote.
    uniform = 1.0 / (num_outputs + 1 if leaky else num_outputs)
    capsules = squash(votes.sum() * uniform + biases)
    all_couplings = [uniform]
    logits = None
    for _ in range(num_routing - 1):
        agreement = votes.agreement(capsules)
        logits = agreement if logits is None else logits + agreement
        couplings = _softmax(logits, votes.outputs_axis, leaky)
        capsules = squash(votes.weighted_sum(couplings) + biases)
        all_couplings.append(couplings)
    return capsules, all_couplings


def _stacked_couplings(votes, biases, num_routing, leaky):
    """The couplings of every iteration: float32 [num_routing, ..., I, O]."""
    _, couplings = _route(votes, biases, num_routing, leaky)
    # Of the first iteration only the number that all of them are is known.
    shape = votes.couplings_shape()
    stacked = ops.stack([ops.broadcast_to(c, shape) for c in couplings])
    return ops.moveaxis(stacked, votes.outputs_axis, -1)


class _FormedVotes:
    """Votes [..., I, O, A] as they are; couplings are [..., O, I].

    In the order [..., O, I, A] both sums over votes are batched matrix
    products, which neither copy the votes nor write a product of their size.
    """

    outputs_axis = -2

    def __init__(self, votes, biases):
        if len(votes.shape) < 3 or tuple(votes.shape[-2:]) != tuple(
            biases.shape
        ):
            raise ValueError(
                "votes must have the shape [..., inputs, outputs, atoms] and "
                "biases [outputs, atoms]. Received: votes of shape "
                f"{tuple(votes.shape)}, biases of shape {tuple(biases.shape)}"
            )
        self._votes = ops.swapaxes(votes, -3, -2)

    def couplings_shape(self):
        return ops.shape(self._votes)[:-1]

    def sum(self):
        """Over the input capsules: float32 [..., O, A]."""
        return ops.cast(ops.sum(self._votes, axis=-2), "float32")

    def agreement(self, capsules):
        """<votes, v>: [..., O, A] -> float32 [..., O, I]."""
        v = ops.expand_dims(ops.cast(capsules, self._votes.dtype), -1)
        product = ops.matmul(self._votes, v)  # [..., O, I, 1]
        return ops.cast(ops.squeeze(product, axis=-1), "float32")

    def weighted_sum(self, couplings):
        """sum_I c * votes: [..., O, I] -> float32 [..., O, A]."""
        c = ops.expand_dims(ops.cast(couplings, self._votes.dtype), -2)
        product = ops.matmul(c, self._votes)  # [..., O, 1, A]
        return ops.cast(ops.squeeze(product, axis=-2), "float32")


class _LinearVotes:
    """Votes inputs @ weights, never formed; couplings are [O, B, I].

    On CPUs the outputs are taken in blocks, of one each up to `_MAX_BLOCKS`
    outputs: products of the size [B, a, I] stay in the cache, where those of
    all outputs at once would be written to memory and read again. This is for
    float32: the gradients of blocks are summed in the type of the inputs, and
    shorter ones would round at every addition.
    """

    outputs_axis = -3

    def __init__(self, inputs, weights, biases):
        _, self._num_inputs, self._num_atoms = inputs.shape
        self._outputs = tuple(biases.shape)  # O, A
        self._inputs = inputs
        # A variable would be cast at each use.
        self._weights = weights = ops.convert_to_tensor(weights)
        # From here on input atoms stand before input capsules: a coupling
        # then multiplies along rows, and products are summed over rows.
        self._inputs_by_atom = ops.transpose(inputs, (0, 2, 1))  # [B, a, I]
        is_float32 = backend.standardize_dtype(inputs.dtype) == "float32"
        in_blocks = is_float32 and is_tensorflow_on_cpu()
        num_blocks = _MAX_BLOCKS if in_blocks else 1
        self._block_size = math.ceil(self._outputs[0] / num_blocks)
        by_output = ops.reshape(weights, (*weights.shape[:2], *self._outputs))
        by_output = ops.reshape(  # [O, A, a * I]
            ops.transpose(by_output, (2, 3, 1, 0)), (*self._outputs, -1)
        )
        self._weight_blocks = self._blocks(by_output)

    def _blocks(self, by_output):
        """[O, ...] -> list of [outputs of a block, ...]."""
        starts = range(self._block_size, self._outputs[0], self._block_size)
        return ops.split(by_output, list(starts)) if starts else [by_output]

    def couplings_shape(self):
        return (
            self._outputs[0],
            ops.shape(self._inputs)[0],
            self._num_inputs,
        )

    def sum(self):
        """Over the input capsules: float32 [B, O, A]."""
        size = self._num_inputs * self._num_atoms
        product = ops.matmul(
            ops.reshape(self._inputs, (-1, size)),
            ops.reshape(self._weights, (size, -1)),
        )
        return ops.cast(ops.reshape(product, (-1, *self._outputs)), "float32")

    def agreement(self, capsules):
        """<inputs, weights @ v>: [B, O, A] -> float32 [O, B, I]."""
        v = ops.cast(ops.transpose(capsules, (1, 0, 2)), self._inputs.dtype)
        blocks = zip(self._blocks(v), self._weight_blocks, strict=True)
        agreement = ops.concatenate(
            [self._agreement_of_block(*block) for block in blocks]
        )
        return ops.cast(agreement, "float32")

    def _agreement_of_block(self, v, weights):
        product = ops.reshape(
            ops.matmul(v, weights),
            (v.shape[0], -1, self._num_atoms, self._num_inputs),
        )
        return ops.sum(product * self._inputs_by_atom, axis=2)

    def weighted_sum(self, couplings):
        """(c * inputs) @ weights: [O, B, I] -> float32 [B, O, A]."""
        c = ops.expand_dims(ops.cast(couplings, self._inputs.dtype), 2)
        blocks = zip(self._blocks(c), self._weight_blocks, strict=True)
        product = ops.concatenate(
            [self._weighted_sum_of_block(*block) for block in blocks]
        )
        return ops.cast(ops.transpose(product, (1, 0, 2)), "float32")

    def _weighted_sum_of_block(self, c, weights):
        weighted = ops.reshape(
            c * self._inputs_by_atom,
            (c.shape[0], -1, self._num_atoms * self._num_inputs),
        )
        return ops.matmul(weighted, ops.swapaxes(weights, 1, 2))
