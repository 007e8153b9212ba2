"""Computes a batch in blocks. This saves memory and, on CPUs, time."""

import keras
from keras import backend, ops

from .backends import is_on_cpu

# Entries of the largest intermediate tensors of a block: 16 MB on CPUs. From
# 32 MB on, TensorFlow's allocator requests and clears pages at each use, which
# takes longer than the computation.
_CPU_NUMBERS = 2**22
_OTHER_NUMBERS = 2**26


def block_size(numbers_per_example: int) -> int:
    """Number of examples per block, a power of two."""
    limit = _CPU_NUMBERS if is_on_cpu("tensorflow") else _OTHER_NUMBERS
    return 2 ** ((max(limit // numbers_per_example, 1)).bit_length() - 1)


def by_blocks(function, examples, constants, size):
    """Calls a function of a batch on one block after the other.

    A block has `size` examples of each tensor [B, ...]; the last block is
    padded with zeros. The function takes the tensors of a block and the
    constants and returns a tuple of tensors [b, ...]. Gradients compute each
    block again (`keras.remat`), so only the arguments are kept, and TensorFlow
    has no second derivatives.
    """
    function = keras.remat(function)
    static_batch = examples[0].shape[0]
    # In exports of JAX an unknown batch size is a symbol.
    if isinstance(static_batch, int) and static_batch <= size:
        return function(*examples, *constants)
    batch = ops.shape(examples[0])[0]
    missing = -(-batch // size) * size - batch

    def split(tensor):  # [B, ...] -> [blocks, size, ...]
        _, *shape = tensor.shape
        pads = [(0, missing), *[(0, 0)] * len(shape)]
        return ops.reshape(ops.pad(tensor, pads), (-1, size, *shape))

    blocks = tuple(map(split, examples))
    results = _map(lambda block: function(*block, *constants), blocks)
    return tuple(ops.reshape(r, (-1, *r.shape[2:]))[:batch] for r in results)


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
