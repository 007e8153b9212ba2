"""Votes of matrix capsules: the pose of a child times a 4x4 matrix.

Axes have this order:

  O  parent capsule types
  N  parent positions of all images, in one axis
  16 entries of a pose, a 4x4 matrix row by row
  K  children in the receptive field of a parent position

Votes are float32. Layers process images in blocks, to save memory and time.
"""

import math
from typing import Any

import keras
from keras import backend, ops

from .backends import is_exporting, is_on_cpu
from .base_layers import Shape, Tensor
from .windows import WindowLayer

POSE_SIZE = 4
POSE_ENTRIES = POSE_SIZE**2


def materialize(tensor):
    """Writes a tensor to memory once, by a product with an identity matrix.

    On CPUs TensorFlow's XLA would compute it again in each operation that
    reads it, often by slow loops; likewise its gradient.
    """
    if not is_on_cpu("tensorflow"):
        return tensor
    size = math.gcd(tensor.shape[-1], 24)  # long enough for vectorized loops
    rows = ops.reshape(tensor, (-1, size))
    rows = ops.matmul(rows, ops.eye(size, dtype="float32"))
    return ops.reshape(rows, ops.shape(tensor))


@ops.custom_gradient
def matrix_votes(poses: Tensor, kernel: Tensor) -> Any:
    """Votes V = M W of children for every parent type.

    Poses M are [N, 4, 4, P, C]: a receptive field has P places with C children
    each. All places share the kernel W [O, 4, 4, C]. The votes V are
    [O, N, 16, P * C]. All are float32.

    4x4 products are too small to be vectorized. Hence V is a sum of four
    elementwise products, and both gradients are batches of C larger products.
    """
    places, children = poses.shape[3:]
    types = kernel.shape[0]
    poses = materialize(poses)
    votes = sum(  # [O, N, 4, 4, P, C]
        poses[None, :, :, row, None] * kernel[:, None, None, row, :, None]
        for row in range(POSE_SIZE)
    )

    def gradients(*arguments, upstream=None):
        if upstream is None:
            (upstream,) = arguments
        shape = (types, -1, POSE_SIZE, POSE_SIZE, places, children)
        of_votes = ops.reshape(materialize(upstream), shape)
        of_votes = ops.transpose(of_votes, (5, 0, 3, 1, 2, 4))
        # [C, O * 4, 4 * N * P]
        of_votes = ops.reshape(of_votes, (children, types * POSE_SIZE, -1))
        columns = ops.reshape(  # [C, 4, O * 4]
            ops.transpose(kernel, (3, 1, 0, 2)), (children, POSE_SIZE, -1)
        )
        rows = ops.reshape(  # [C, 4 * N * P, 4]
            ops.transpose(poses, (4, 0, 1, 3, 2)), (children, -1, POSE_SIZE)
        )
        shape = (children, POSE_SIZE, -1, POSE_SIZE, places)
        of_poses = ops.reshape(ops.matmul(columns, of_votes), shape)
        shape = (children, types, POSE_SIZE, POSE_SIZE)
        of_kernel = ops.reshape(ops.matmul(of_votes, rows), shape)
        return (
            ops.transpose(of_poses, (2, 3, 1, 4, 0)),
            ops.transpose(of_kernel, (1, 3, 2, 0)),
        )

    votes = ops.reshape(votes, (types, -1, POSE_ENTRIES, places * children))
    return votes, gradients


def over_children(votes: Tensor, weights: Tensor) -> Tensor:
    """Weighted sums over K: [O, N, h, K] and [O, N, K] -> [O, N, h]."""
    return ops.matmul(votes, weights[..., None])[..., 0]


def over_entries(votes: Tensor, weights: Tensor) -> Tensor:
    """Weighted sums over entries: [O, N, h, K] and [O, N, h] -> [O, N, K]."""
    return ops.matmul(weights[:, :, None], votes)[:, :, 0]


def by_blocks(function, examples, constants, size):
    """Calls a function on blocks of `size` examples, and joins the results.

    The function takes a block of each of the tensors `examples` [B, ...], then
    the constants, and returns a tuple of tensors. The last block is padded with
    zeros. To save memory, the backward pass computes each block again, by
    `keras.remat`. TensorFlow therefore cannot compute second derivatives.
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

    if is_exporting("onnx"):  # it would return no examples
        raise NotImplementedError(
            "ONNX files cannot have this network's loops over blocks of images"
        )
    # Unlike `ops.map`, which computes and keeps up to ten blocks at once.
    of_first = function([block[0] for block in blocks])
    signature = tuple(map(tf.TensorSpec.from_tensor, of_first))
    return tf.map_fn(
        function, blocks, fn_output_signature=signature, parallel_iterations=1
    )


class VotingLayer(WindowLayer):
    """Base class of layers with matrix votes, computed in blocks of images.

    A subclass defines `_kernel_initializer(shape)` for the weights.
    """

    num_atoms = POSE_ENTRIES
    _shares_weights = False  # whether all places in the window share weights

    def build(self, input_shape: Shape) -> None:
        if len(input_shape) != 5 or input_shape[-1] != POSE_ENTRIES:
            raise ValueError(
                f"Poses must be [B, H, W, I, 16]. Received: {input_shape}"
            )
        self._window = self.window(input_shape)
        self._positions = self.grid(input_shape)
        window, types = self._window.shape, input_shape[3]
        places = math.prod(window)
        # (P, C) of `matrix_votes` and the axes of the weights before [O, 4, 4].
        axes: Shape = (*window, types)
        self._field = 1, places * types
        if self._shares_weights:
            self._field, axes = (places, types), (types,)
        sizes = *self._positions, *self._field, self.num_capsules
        self._num_votes = math.prod(sizes)
        # A block's tensors, about four of the size of its votes, take up to 16
        # MB on CPUs. From 32 MB on, TensorFlow's allocator requests and clears
        # pages at each use, which takes longer than the computation.
        limit = 2**22 if is_on_cpu("tensorflow") else 2**26
        most = limit // (4 * self._num_votes * POSE_ENTRIES)
        self._block_size = 2 ** (max(most, 1).bit_length() - 1)
        shape = (*axes, self.num_capsules, POSE_SIZE, POSE_SIZE)
        initializer = self._kernel_initializer(shape)
        self.kernel = self.add_weight(shape, initializer, name="weights")
        self.input_spec = keras.layers.InputSpec(shape=(None, *input_shape[1:]))

    def _by_blocks(self, function, poses, *examples, constants=()):
        """Calls a function on blocks of images.

        Its arguments are poses [b, n, 4, 4, P, C] of the children in each
        window, the examples [b, ...], the weights [O, 4, 4, C] and constants.
        """
        poses = self._window.patches(ops.cast(poses, "float32"))
        sizes = math.prod(self._positions), *self._field, POSE_SIZE, POSE_SIZE
        poses = ops.reshape(poses, (-1, *sizes))  # [B, n, P, C, 4, 4]
        poses = ops.transpose(poses, (0, 1, 4, 5, 2, 3))
        # Rounded like all weights under mixed precision. As tensors, since
        # blocks that are computed again would read variables again.
        kernel = ops.cast(ops.cast(self.kernel, self.compute_dtype), "float32")
        kernel = ops.reshape(kernel, (-1, *kernel.shape[-3:]))
        constants = [ops.transpose(kernel, (1, 2, 3, 0)), *constants]
        examples = [poses, *examples]
        return by_blocks(function, examples, constants, self._block_size)

    def _votes(self, poses, kernel):
        """Votes [O, b * n, 16, K] of the poses and weights of `_by_blocks`."""
        return matrix_votes(ops.reshape(poses, (-1, *poses.shape[2:])), kernel)

    def _by_image(self, tensor):
        """[O, b * n, ...] -> [b, n, ..., O]."""
        tensor = ops.moveaxis(tensor, 0, -1)
        positions = math.prod(self._positions)
        return ops.reshape(tensor, (-1, positions, *tensor.shape[1:]))

    def multiply_adds(self, input_shape: Shape) -> int:
        return self._num_votes * POSE_SIZE**3
