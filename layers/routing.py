"""Routing by agreement, squashing and capsule lengths: pure functions.

Axes are named as in the paper and in this order, atoms always last:

  B  batch (and, for convolutional capsules, positions: any leading axes)
  I  input capsules
  O  output capsules
  A  atoms of an output capsule

Source: S. Sabour, N. Frosst, G. Hinton, "Dynamic Routing Between Capsules",
NIPS 2017, https://arxiv.org/abs/1710.09829 ("the paper" in this package).
"""

from keras import ops

# Added to the squared length under the reciprocal square root. It makes value
# and gradient exactly 0 for a zero capsule and stays below float32 rounding
# for every length >= 1e-4.
_EPSILON = 1e-16


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
    logits = ops.convert_to_tensor(logits)
    # exp(l_o) / (1 + sum_o exp(l_o)), stabilised by the largest logit, the
    # fixed one included.
    largest = ops.stop_gradient(
        ops.maximum(ops.max(logits, axis=axis, keepdims=True), 0.0)
    )
    exponentials = ops.exp(logits - largest)
    total = ops.sum(exponentials, axis=axis, keepdims=True)
    return exponentials / (total + ops.exp(-largest))


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
    activations, _ = _route(votes, biases, num_routing, leaky)
    return ops.cast(activations, votes.dtype)


def routing_couplings(votes, biases, num_routing=3, leaky=False):
    """The couplings c of every iteration of `dynamic_routing`.

    Args and raises: as `dynamic_routing`.

    Returns:
      float32 tensor [num_routing, ..., I, O]. Over O the couplings sum to 1,
      or to less if leaky.
    """
    _, couplings = _route(votes, biases, num_routing, leaky)
    # Of the first iteration only the number that all of them are is known.
    shape = (*ops.shape(votes)[:-3], votes.shape[-2], votes.shape[-3])
    stacked = ops.stack([ops.broadcast_to(c, shape) for c in couplings])
    return ops.swapaxes(stacked, -2, -1)


def _route(votes, biases, num_routing, leaky):
    """Routing by agreement, see `dynamic_routing`.

    Returns:
      Tuple of the float32 output capsules [..., O, A] of the last iteration,
      and the list of each iteration's couplings: float32 [..., O, I], of the
      first iteration a float.
    """
    if num_routing < 1:
        raise ValueError(
            f"num_routing must be at least 1. Received: {num_routing}"
        )
    if len(votes.shape) < 3 or tuple(votes.shape[-2:]) != tuple(biases.shape):
        raise ValueError(
            "votes must have the shape [..., inputs, outputs, atoms] and "
            "biases [outputs, atoms]. Received: votes of shape "
            f"{tuple(votes.shape)}, biases of shape {tuple(biases.shape)}"
        )
    biases = ops.cast(biases, "float32")
    # [..., O, I, A]: both sums below are then batched matrix products, which
    # neither copy the votes nor write a product of their size.
    votes = ops.swapaxes(votes, -3, -2)
    num_outputs = votes.shape[-3]

    # The softmax of zeros is known: no need to multiply by it vote by vote.
    uniform = 1.0 / (num_outputs + 1 if leaky else num_outputs)
    summed = ops.cast(ops.sum(votes, axis=-2), "float32") * uniform
    activations = squash(summed + biases)
    all_couplings = [uniform]
    logits = None
    for _ in range(num_routing - 1):
        agreement = _agreement(votes, activations)
        logits = agreement if logits is None else logits + agreement
        couplings = (
            leaky_softmax(logits, axis=-2)
            if leaky
            else ops.softmax(logits, axis=-2)
        )
        activations = squash(_weighted_sum(couplings, votes) + biases)
        all_couplings.append(couplings)
    return activations, all_couplings


def _agreement(votes, activations):
    """<votes, v>: [..., O, I, A], [..., O, A] -> float32 [..., O, I]."""
    v = ops.expand_dims(ops.cast(activations, votes.dtype), -1)
    product = ops.matmul(votes, v)  # [..., O, I, 1]
    return ops.cast(ops.squeeze(product, axis=-1), "float32")


def _weighted_sum(couplings, votes):
    """sum_I c * votes: [..., O, I], [..., O, I, A] -> float32 [..., O, A]."""
    c = ops.expand_dims(ops.cast(couplings, votes.dtype), -2)
    product = ops.matmul(c, votes)  # [..., O, 1, A]
    return ops.cast(ops.squeeze(product, axis=-2), "float32")
