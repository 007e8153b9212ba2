"""Helpers of the layers: devices, weights, slices, windows and blocks."""

import functools
import math
import pathlib
import traceback
from typing import Any, TypeAlias

import keras
from keras import backend, ops

# A tensor of any backend, a NumPy array or a symbolic Keras tensor. These
# types have no common base class.
Tensor: TypeAlias = Any

# Added to squared lengths of capsules, so that gradients are finite at zero.
# For lengths >= 1e-4 it is below the rounding error of float32.
EPSILON = 1e-16


def is_on_cpu(backend_name: str | None = None) -> bool:
    """Whether computations run on CPUs, with the named backend if given."""
    if backend_name not in (None, backend.backend()):
        return False
    if backend.backend() == "tensorflow":
        import tensorflow as tf

        return not tf.config.list_logical_devices("GPU")
    if backend.backend() == "jax":
        import jax

        return jax.default_backend() == "cpu"
    import torch

    # `keras.device` can select the CPU of a machine that has a GPU.
    return (
        not torch.cuda.is_available()
        or ops.convert_to_tensor(0.0).device.type == "cpu"
    )


def is_exporting() -> bool:
    """Whether Keras traces an export, whatever its format.

    TFLite and ONNX lack operations of the Toom-Cook algorithm and expm1. Keras
    has no flag for an export, but its code is on the call stack.
    """
    return any(
        frame.f_globals.get("__name__", "").startswith("keras.src.export.")
        for frame, _ in traceback.walk_stack(None)
    )


def is_mirrored() -> bool:
    """Whether TensorFlow distributes each batch over several devices."""
    if backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return tf.distribute.has_strategy()


def use_full_float32() -> None:
    """Disables TF32 for the rest of the process.

    By default GPUs round the factors of float32 products to 10 bits.
    """
    if backend.backend() == "tensorflow":
        import tensorflow as tf

        tf.config.experimental.enable_tensor_float_32_execution(False)
    elif backend.backend() == "jax":
        import jax

        jax.config.update("jax_default_matmul_precision", "highest")
    else:
        import torch

        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False


@functools.cache
def cpu_has_bfloat16_products() -> bool:
    """Whether the CPU multiplies bfloat16 and accumulates in float32.

    Reads the flags of /proc/cpuinfo; False on systems without that file.
    """
    try:
        words = pathlib.Path("/proc/cpuinfo").read_text().split()
    except OSError:
        return False
    return not {"avx512_bf16", "amx_bf16"}.isdisjoint(words)


# Initial weights of the reference's capsule and dense layers; plain
# convolutions have a standard deviation of 0.05.
WEIGHT_STDDEV = 0.1
BIAS = 0.1


@keras.saving.register_keras_serializable(package="capsules")
class TruncatedNormal(keras.initializers.TruncatedNormal):
    """Normal distribution truncated at two standard deviations.

    On torch Keras' own initializer draws four candidates for each number and
    keeps the first if all four are outside the range, four times in a million.
    """

    def __call__(self, shape, dtype=None):
        values = super().__call__(shape, dtype)
        limit = 2 * self.stddev
        return ops.clip(values, self.mean - limit, self.mean + limit)


def reference_initializers(stddev: float = WEIGHT_STDDEV) -> dict:
    """Keyword arguments of a Keras layer: the reference's initializers."""
    return {
        "kernel_initializer": TruncatedNormal(stddev=stddev),
        "bias_initializer": keras.initializers.Constant(BIAS),
    }


def batch_normalization(name: str, axis: int = -1, **options):
    """Batch normalization with PyTorch's constants, over all devices."""
    return keras.layers.BatchNormalization(
        axis,
        momentum=0.9,
        epsilon=1e-5,
        synchronized=is_mirrored(),
        name=name,
        **options,
    )


class Layer(keras.layers.Layer):
    """Base of layers that honor masks in `call`, or else refuse them."""

    # Arguments of the constructor that `get_config` saves, and the attributes
    # that hold them.
    arguments = ()

    def get_config(self):
        saved = {name: getattr(self, name) for name in self.arguments}
        return {**super().get_config(), **saved}

    def compute_mask(self, inputs, previous_mask):
        masks = keras.tree.flatten(previous_mask)
        has_masks = any(mask is not None for mask in masks)
        if has_masks and "mask" not in self.call_signature_parameters:
            raise ValueError(f"The layer {self.name!r} does not support masks")


def mask_out(inputs, mask):
    """Sets masked capsules to zero, so that they cast no votes.

    Capsules are [..., a]. A mask is [...] and true for capsules that are kept.
    """
    if mask is None:
        return inputs
    require_shape("mask", mask, inputs.shape[:-1])
    return ops.where(ops.expand_dims(mask, -1), inputs, 0)


def require_shape(name: str, tensor: Tensor, shape, hint: str = "") -> None:
    """Raises ValueError for another shape; unknown sizes match all others."""
    sizes = zip(tensor.shape, shape, strict=False)
    is_same = all(None in pair or pair[0] == pair[1] for pair in sizes)
    if len(tensor.shape) != len(shape) or not is_same:
        raise ValueError(
            f"`{name}` must have the shape {tuple(shape)}{hint}. "
            f"Received: {tuple(tensor.shape)}"
        )


def largest(tensor, axis: int | tuple[int, ...]):
    """`ops.max` that keeps the axis and accepts an empty batch."""
    initial = -math.inf if 0 in tensor.shape else None
    return ops.max(tensor, axis=axis, keepdims=True, initial=initial)


def slice_axis(tensor, axis: int, start: int = 0, stop: int | None = None):
    """Returns `tensor[start:stop]` along one axis.

    On CPUs TensorFlow's gradient of `ops.slice` is three to ten times as fast
    as that of an index expression. `stop` may be negative, `start` may not.
    """
    shape = list(ops.shape(tensor))
    if stop is None:
        stop = shape[axis]
    elif stop < 0:
        stop += shape[axis]
    if start == 0 and tensor.shape[axis] == stop:
        return tensor
    starts = [0] * len(shape)
    starts[axis], shape[axis] = start, stop - start
    return ops.slice(tensor, starts, shape)


def positions_of(size: int, kernel: int, strides: int, padding: str) -> int:
    """Number of positions of a kernel along one axis."""
    if padding.upper() not in ("VALID", "SAME"):
        raise ValueError(
            f'`padding` must be "VALID" or "SAME". Received: {padding!r}'
        )
    if size is None:
        raise ValueError("The height and width of the input must be known")
    overlap = kernel - 1 if padding.upper() == "VALID" else 0
    if overlap >= size:
        raise ValueError(f"The kernel exceeds the input: {kernel} > {size}")
    return -(-(size - overlap) // strides)


def zeros_around(
    size: int, kernel: int, strides: int, padding: str
) -> tuple[int, int]:
    """Padding before and after an axis; with SAME an odd zero goes after."""
    positions = positions_of(size, kernel, strides, padding)
    missing = max((positions - 1) * strides + kernel - size, 0)
    return missing // 2, missing - missing // 2


# Smaller than any log density; finite, so that differences stay finite.
_LOG_ZERO = -1e30


class Window:
    """A k x k window that slides over a grid [H, W] of child capsules.

    With k = None the window is as large as the grid.

    Attributes:
      shape: (rows, columns) of the window.
      positions: (h, w), the grid of parents, one for each window position.
    """

    def __init__(self, height, width, size, strides, padding):
        self.shape = (size or height, size or width)
        self._strides = strides
        grid = zip((height, width), self.shape, strict=True)
        axes = [(*lengths, strides, padding) for lengths in grid]
        self.positions = tuple(positions_of(*axis) for axis in axes)
        self._pads = [zeros_around(*axis) for axis in axes]

    def patches(self, grid):
        """[B, H, W, ...] -> [B, h, w, k * k, ...], with zero padding."""
        _, height, width, *axes = grid.shape
        if (height, width) == self.shape and self.positions == (1, 1):
            return ops.reshape(grid, (-1, 1, 1, height * width, *axes))
        pads = [(0, 0), *self._pads, *[(0, 0)] * len(axes)]
        return ops.stack(list(self._shifted(ops.pad(grid, pads), 1)), axis=3)

    def _shifted(self, grid, axis):
        """Yields the children at each of the k * k places in the windows.

        The axes of the grid are `axis` and `axis + 1`.
        """
        height, width = ((p - 1) * self._strides + 1 for p in self.positions)
        leading = (slice(None),) * axis
        for row in range(self.shape[0]):
            for column in range(self.shape[1]):
                rows = slice(row, row + height, self._strides)
                columns = slice(column, column + width, self._strides)
                yield grid[(*leading, rows, columns)]

    def over_windows(self, entries, combine):
        """Sums, or takes the maximum, over all windows that contain a child.

        Entries are [G, N, K], N = B * h * w, K = k * k * I: a child has one in
        each such window, and all are replaced by the result. `combine` is
        `ops.add` or `ops.maximum`.
        """
        empty = 0.0 if combine is ops.add else _LOG_ZERO
        groups, _, num_children = entries.shape
        height, width = self.positions
        size, stride = self.shape[0], self._strides
        last = size - 1
        types = num_children // size**2
        windows = ops.reshape(
            entries, (groups, -1, height, width, size, size, types)
        )
        grid = None
        for row in range(size):
            for column in range(size):
                # Moves the entries to the positions of their children: with
                # gaps of `stride` and shifted by (row, column).
                children = ops.reshape(
                    windows[:, :, :, :, row, column],
                    (groups, -1, height, 1, width, 1, types),
                )
                gap, none = (0, stride - 1), (0, 0)
                if stride > 1:
                    children = ops.pad(
                        children,
                        (none, none, none, gap, none, gap, none),
                        constant_values=empty,
                    )
                children = ops.reshape(
                    children,
                    (groups, -1, height * stride, width * stride, types),
                )
                shifts = (row, last - row), (column, last - column)
                children = ops.pad(
                    children, (none, none, *shifts, none), constant_values=empty
                )
                grid = children if grid is None else combine(grid, children)
        combined = ops.stack(list(self._shifted(grid, 2)), axis=4)
        return ops.reshape(combined, ops.shape(entries))


class PoseLayer(Layer):
    """Base of layers that return poses and float32 activations."""

    def compute_output_spec(self, inputs, training=None):
        # Keras cannot infer shapes through blocks of an unknown batch, and
        # would give both the same dtype.
        shapes = keras.tree.map_structure(lambda tensor: tensor.shape, inputs)
        dtypes = self.compute_dtype, "float32"
        return tuple(
            map(keras.KerasTensor, self.compute_output_shape(shapes), dtypes)
        )


def pair_specs(shapes):
    """The `input_spec` of poses [B, H, W, I, a], activations [B, H, W, I]."""
    is_pair = len(shapes) == 2 and isinstance(shapes[0], (tuple, list))
    poses = shapes[0] if is_pair else ()
    if len(poses) != 5 or tuple(poses[:-1]) != tuple(shapes[1]):
        raise ValueError(
            "The inputs must be a pair: poses [B, H, W, I, a] and activations "
            f"[B, H, W, I] with the same axes B, H, W, I. Received: {shapes}"
        )
    return [
        keras.layers.InputSpec(shape=(None, *shape[1:])) for shape in shapes
    ]


class WindowLayer(Layer):
    """Base of layers whose parents have the children in a `Window`.

    Args:
      num_capsules: int, O, number of parent types.
      kernel_size: int, k, height and width of the window. None is the whole
        grid, for class capsules: their outputs are without the axes h, w.
      strides: int, the stride in both directions.
      padding: "VALID" or "SAME", in upper or lower case.

    Input: pair of poses [B, H, W, I, a] and activations [B, H, W, I].
    Output: pair of poses [B, h, w, O, A] and activations [B, h, w, O].
    """

    arguments = ("num_capsules", "kernel_size", "strides", "padding")
    num_atoms = None  # A; None stands for 1

    def __init__(
        self,
        num_capsules: int,
        kernel_size: int | None = None,
        strides: int = 1,
        padding: str = "VALID",
        **kwargs,
    ):
        # Without autocast activations stay float32 under mixed precision.
        super().__init__(autocast=False, **kwargs)
        self.num_capsules = num_capsules
        self.kernel_size = kernel_size
        self.strides = strides
        self.padding = padding.upper()

    def window(self, shape):
        """The `Window` of children [B, H, W, ...]."""
        return Window(*shape[1:3], self.kernel_size, self.strides, self.padding)

    def grid(self, shape):
        """(h, w) of the parents of [B, H, W, ...]; () for classes."""
        return self.window(shape).positions if self.kernel_size else ()

    def compute_output_shape(self, input_shape):
        _, shape = input_shape
        shape = (shape[0], *self.grid(shape), self.num_capsules)
        return (*shape, self.num_atoms or 1), shape


# Numbers of the largest intermediate tensors of one block. On CPUs 16 MB: from
# 32 MB on the allocator of TensorFlow requests and clears pages at each use,
# which takes longer than the computation.
_CPU_NUMBERS = 2**22
_OTHER_NUMBERS = 2**26


def block_size(numbers_per_example: int) -> int:
    """Number of examples per block, a power of two."""
    limit = _CPU_NUMBERS if is_on_cpu("tensorflow") else _OTHER_NUMBERS
    return 2 ** ((max(limit // numbers_per_example, 1)).bit_length() - 1)


def by_blocks(function, examples, constants, size):
    """Calls a function of a batch on one block after the other.

    The function takes tensors [b, ...], `size` examples of each tensor
    [B, ...], and the constants; it returns a tuple of tensors [b, ...]. The
    last block is padded with zeros. Only the arguments are kept for the
    gradients; each block is computed again then (`keras.remat`). On TensorFlow
    there are therefore no second derivatives.
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
