"""Computes a batch in blocks of examples, which bounds the memory."""

import keras
from keras import backend, ops

from .utils import is_on_cpu

# Numbers of the largest intermediate tensors of one block. On CPUs 16 MB: for
# tensors of 32 MB and more the allocator of TensorFlow requests and clears
# pages at each use, which takes longer than the computation. On other devices
# blocks are large enough to keep an accelerator busy.
_CPU_NUMBERS = 2**22
_OTHER_NUMBERS = 2**26


def block_size(numbers_per_example: int) -> int:
    """Number of examples per block, a power of two."""
    limit = _CPU_NUMBERS if is_on_cpu("tensorflow") else _OTHER_NUMBERS
    return 2 ** ((max(limit // numbers_per_example, 1)).bit_length() - 1)


def by_blocks(function, examples, constants, size):
    """Calls a function of a batch on one block after the other.

    Only the arguments are kept for the gradients; each block is computed
    again then (`keras.remat`). On TensorFlow there are therefore no second
    derivatives.

    Args:
      function: takes tensors [b, ...] and the constants, and returns a tuple
        of tensors [b, ...]. Examples must not depend on each other.
      examples: list of tensors [B, ...].
      constants: list of tensors.
      size: int, examples per block. The last block is padded with zeros.

    Returns:
      Tuple of tensors [B, ...].
    """
    function = keras.remat(function)
    static_batch = examples[0].shape[0]
    # In exports of JAX an unknown batch size is a symbol.
    if isinstance(static_batch, int) and static_batch <= size:
        return function(*examples, *constants)
    batch = ops.shape(examples[0])[0]
    count = -(-batch // size)
    blocks = tuple(_split(e, count, size, batch) for e in examples)
    results = _map(lambda block: function(*block, *constants), blocks)
    return tuple(ops.reshape(r, (-1, *r.shape[2:]))[:batch] for r in results)


def _split(examples, count, size, batch):
    """[B, ...] -> [count, size, ...], padded with zeros."""
    static_batch, *shape = examples.shape
    is_multiple = size == 1 or (
        static_batch is not None and static_batch % size == 0
    )
    if not is_multiple:
        pads = [(0, count * size - batch), *[(0, 0)] * len(shape)]
        examples = ops.pad(examples, pads)
    return ops.reshape(examples, (-1, size, *shape))


def _map(function, blocks):
    if backend.backend() != "tensorflow":
        return ops.map(function, blocks)
    import tensorflow as tf

    # Unlike `ops.map`, which computes and keeps up to ten blocks at once.
    first = [block[0] for block in blocks]
    signature = tf.nest.map_structure(
        tf.TensorSpec.from_tensor, tuple(function(first))
    )
    return tf.map_fn(
        function, blocks, fn_output_signature=signature, parallel_iterations=1
    )
