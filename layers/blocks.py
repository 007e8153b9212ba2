"""Computing a batch by blocks of examples, so that memory is bounded."""

import keras
from keras import backend, ops

from .utils import is_tensorflow_on_cpu

# Numbers that a block needs at once. On CPUs with TensorFlow, 16 MB: from 32 MB
# on each tensor is mapped anew and its pages are filled with zeros, which takes
# longer than what is computed. Elsewhere large enough to keep an accelerator
# busy.
_CPU_NUMBERS = 2**22
_OTHER_NUMBERS = 2**26


def block_size(numbers):
    """How many examples make a block: a power of two.

    Args:
      numbers: int, how many one example needs at once.
    """
    limit = _CPU_NUMBERS if is_tensorflow_on_cpu() else _OTHER_NUMBERS
    return 2 ** ((max(limit // numbers, 1)).bit_length() - 1)


def by_blocks(function, examples, constants, size):
    """Calls a function of a batch on blocks of it, one after the other.

    For gradients each block is computed a second time (`keras.remat`: on
    TensorFlow `tf.recompute_grad`, on JAX `jax.checkpoint`, on torch
    `torch.utils.checkpoint`), so that only the arguments are kept. On
    TensorFlow there are no second derivatives therefore.

    Args:
      function: of tensors [b, ...] and the constants; gives a tuple of tensors
        [b, ...], each example's independent of the others'.
      examples: list of tensors [B, ...].
      constants: list of tensors.
      size: int, examples of a block. The last is filled up with zeros.

    Returns:
      Tuple of tensors [B, ...].
    """
    function = keras.remat(function)
    static = examples[0].shape[0]
    # JAX has a symbol for an unknown number when it exports.
    if isinstance(static, int) and static <= size:
        return function(*examples, *constants)
    batch = ops.shape(examples[0])[0]
    count = -(-batch // size)
    blocks = tuple(_split(e, count, size, batch) for e in examples)
    results = _map(lambda block: function(*block, *constants), blocks)
    return tuple(ops.reshape(r, (-1, *r.shape[2:]))[:batch] for r in results)


def _split(examples, count, size, batch):
    """[B, ...] to [count, size, ...]."""
    shape = examples.shape[1:]
    if _is_multiple(examples.shape[0], size):
        padded = examples
    else:
        widths = [(0, count * size - batch), *[(0, 0)] * len(shape)]
        padded = ops.pad(examples, widths)
    return ops.reshape(padded, (-1, size, *shape))


def _is_multiple(batch, size):
    return size == 1 or (batch is not None and batch % size == 0)


def _map(function, blocks):
    if backend.backend() != "tensorflow":
        return ops.map(function, blocks)
    import tensorflow as tf

    # As `ops.map`, which computes up to ten at once, and keeps all of them.
    first = [block[0] for block in blocks]
    shapes = tf.nest.map_structure(
        tf.TensorSpec.from_tensor, tuple(function(first))
    )
    return tf.map_fn(
        function,
        blocks,
        fn_output_signature=shapes,
        parallel_iterations=1,
    )
