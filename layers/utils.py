"""Helpers shared by the layers: devices, weights, slices, receptive fields."""

import functools
import pathlib
from typing import Any, TypeAlias

import keras
import numpy as np
from keras import backend, ops

# A tensor of any backend, a NumPy array or a symbolic Keras tensor. These
# types have no common base class.
Tensor: TypeAlias = Any


# Device and precision queries.


def is_on_cpu() -> bool:
    """Whether the backend computes on CPUs."""
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


def is_tensorflow_on_cpu() -> bool:
    """Whether TensorFlow computes on CPUs."""
    return backend.backend() == "tensorflow" and is_on_cpu()


def is_jax_on_cpu() -> bool:
    """Whether JAX computes on CPUs."""
    return backend.backend() == "jax" and is_on_cpu()


def is_mirrored() -> bool:
    """Whether TensorFlow distributes each batch over several devices."""
    if backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return tf.distribute.has_strategy()


def use_full_float32() -> None:
    """Disables TF32 for the rest of the process.

    On GPUs TensorFlow and JAX (and torch in convolutions) round the factors
    of float32 products to the 10-bit mantissa of TF32 by default.
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
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return False
    flags = next((line for line in lines if line.startswith("flags")), "")
    return not {"avx512_bf16", "amx_bf16"}.isdisjoint(flags.split())


# Initial weights of the reference.

# Standard deviation for capsule and dense layers; other convolutions use 0.05.
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


# Slices.


def slice_axis(tensor, axis: int, start: int = 0, stop: int | None = None):
    """Returns `tensor[start:stop]` along one axis.

    The gradient of `ops.slice` is three to ten times as fast on TensorFlow on
    CPUs as that of an index expression.

    Args:
      tensor: tensor.
      axis: int.
      start: int, not negative.
      stop: int, from the end if negative; None for the end.

    Returns:
      Tensor; `tensor` itself if the slice is the whole axis.
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


# Receptive fields of convolutions.


def positions_of(size: int, kernel: int, strides: int, padding: str) -> int:
    """Number of positions of a kernel along one axis; 0 if it does not fit."""
    if padding.upper() == "VALID":
        size = size - kernel + 1
    return max(0, -(-size // strides))


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
    """Which children each position of parents sees, and back.

    Args:
      height, width: int, of the grid of children.
      size: int, k, height and width of a receptive field.
      strides: int, in both directions.
      padding: "VALID" or "SAME", as of a convolution.

    Attributes:
      positions: (h, w), of the parents.
    """

    def __init__(self, height, width, size, strides, padding):
        self._size = size
        self._strides = strides
        axes = [(n, size, strides, padding) for n in (height, width)]
        self.positions = tuple(positions_of(*axis) for axis in axes)
        self._pads = [zeros_around(*axis) for axis in axes]

    def patches(self, grid):
        """[B, H, W, ...] to [B, h, w, k * k, ...], with zeros around."""
        others = len(grid.shape) - 3
        padded = ops.pad(grid, [(0, 0), *self._pads, *[(0, 0)] * others])
        return ops.stack(list(self._shifted(padded, 1)), axis=3)

    def _shifted(self, grid, axis):
        """What each place of all receptive fields sees: k * k tensors."""
        rows, columns = (
            [
                slice(start, start + (p - 1) * self._strides + 1, self._strides)
                for start in range(self._size)
            ]
            for p in self.positions
        )
        before = (slice(None),) * axis
        for row in rows:
            for column in columns:
                yield grid[(*before, row, column)]

    def unflatten(self, entries):
        """[G, N, K] to [G, B, h, w, k, k, I]."""
        per_place = entries.shape[-1] // self._size**2
        return ops.reshape(
            entries,
            (
                entries.shape[0],
                -1,
                *self.positions,
                self._size,
                self._size,
                per_place,
            ),
        )

    def num_parents(self):
        """How many positions see the child of an entry: [h, w, k, k]."""
        counts = []
        for positions in self.positions:
            seen = np.zeros((positions - 1) * self._strides + self._size)
            starts = self._strides * np.arange(positions)
            places = starts[:, None] + np.arange(self._size)
            np.add.at(seen, places, 1)
            counts.append(seen[places])
        rows, columns = counts
        return rows[:, None, :, None] * columns[None, :, None, :]

    def over_fields(self, fields, combine):
        """Combines the entries of all receptive fields that are of one child.

        Args:
          fields: tensor [G, B, h, w, k, k, I].
          combine: `ops.add` or `ops.maximum`.

        Returns:
          Tensor of the same shape: for each entry what its child has.
        """
        nothing = 0.0 if combine is ops.add else _LOG_ZERO
        height, width = self.positions
        leading = (fields.shape[0], -1)
        per_place = fields.shape[-1]
        between = self._strides - 1
        grid = None
        for row in range(self._size):
            for column in range(self._size):
                # To where the children are: with the strides between them,
                # and moved to the place of the receptive field.
                entries = ops.reshape(
                    fields[:, :, :, :, row, column],
                    (*leading, height, 1, width, 1, per_place),
                )
                entries = _pad(
                    entries, {3: (0, between), 5: (0, between)}, nothing
                )
                entries = ops.reshape(
                    entries,
                    (
                        *leading,
                        height * self._strides,
                        width * self._strides,
                        per_place,
                    ),
                )
                last = self._size - 1
                entries = _pad(
                    entries,
                    {2: (row, last - row), 3: (column, last - column)},
                    nothing,
                )
                grid = entries if grid is None else combine(grid, entries)
        of_children = ops.stack(list(self._shifted(grid, 2)), axis=4)
        return ops.reshape(of_children, ops.shape(fields))


def _pad(tensor, widths, value):
    """Pads the axes that `widths` names, if there is anything to add."""
    if not any(sum(pair) for pair in widths.values()):
        return tensor
    pads = [widths.get(axis, (0, 0)) for axis in range(len(tensor.shape))]
    return ops.pad(tensor, pads, constant_values=value)
