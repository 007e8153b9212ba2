"""Windows over a grid of capsules; the base class of layers with windows."""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from .base_layers import (
    Layer,
    Names,
    Pair,
    Shape,
    Tensor,
    positions_of,
    zeros_around,
)


class Window:
    """A window on a grid [H, W] of children: k x k, or the whole grid.

    `shape` is (rows, columns) of the window. `positions` is (h, w), the number
    of window positions along each axis. Parents form a grid [h, w].
    """

    def __init__(self, height, width, size, strides, padding):
        self.shape = (size or height, size or width)
        self._strides = strides
        grid = zip((height, width), self.shape, strict=True)
        axes = [(*lengths, strides, padding) for lengths in grid]
        self.positions = tuple(positions_of(*axis) for axis in axes)
        self._pads = [zeros_around(*axis) for axis in axes]

    def patches(self, grid: Tensor) -> Tensor:
        """[B, H, W, ...] -> [B, h, w, rows * columns, ...], zero-padded."""
        _, height, width, *axes = grid.shape
        if (height, width) == self.shape and self.positions == (1, 1):
            return ops.reshape(grid, (-1, 1, 1, height * width, *axes))
        pads = [(0, 0), *self._pads, *[(0, 0)] * len(axes)]
        return ops.stack(list(self._shifted(ops.pad(grid, pads), 1)), axis=3)

    def _shifted(self, grid, axis):
        """Yields the children at each place in a window; H is axis `axis`."""
        height, width = ((p - 1) * self._strides + 1 for p in self.positions)
        leading = (slice(None),) * axis
        for row, column in itertools.product(*map(range, self.shape)):
            rows = slice(row, row + height, self._strides)
            columns = slice(column, column + width, self._strides)
            yield grid[(*leading, rows, columns)]

    def over_windows(self, entries, combine):
        """Combines a child's entries over all windows that contain the child.

        `entries` [any, N, K] are for N = B * h * w windows of K = k * k * I
        children (I types); `combine` is `ops.add` or `ops.maximum`.
        """
        # Below any log density, but finite, so that differences stay finite.
        empty = 0.0 if combine is ops.add else -1e30
        pad = functools.partial(ops.pad, constant_values=empty)
        groups, _, num_children = entries.shape
        height, width = self.positions
        size, stride = self.shape[0], self._strides
        types = num_children // size**2
        shape = groups, -1, height, width, size, size, types
        windows = ops.reshape(entries, shape)
        gap, none = (0, stride - 1), (0, 0)

        def of_place(row, column):
            """Entries at their children: with gaps of `stride`, and shifted."""
            children = windows[:, :, :, None, :, None, row, column]
            children = pad(children, (none, none, none, gap, none, gap, none))
            shape = groups, -1, height * stride, width * stride, types
            shifts = [(n, size - 1 - n) for n in (row, column)]
            children = ops.reshape(children, shape)
            return pad(children, (none, none, *shifts, none))

        places = itertools.product(range(size), repeat=2)
        grid = functools.reduce(combine, itertools.starmap(of_place, places))
        combined = ops.stack(list(self._shifted(grid, 2)), axis=4)
        return ops.reshape(combined, ops.shape(entries))


class PoseLayer(Layer):
    """Base of layers that return poses and float32 activations."""

    __call__: Callable[..., Pair]

    def compute_output_spec(self, inputs: Any, training: Any = None) -> Any:
        # Keras cannot infer shapes through blocks, and gives both one dtype.
        shapes = keras.tree.map_structure(lambda tensor: tensor.shape, inputs)
        dtypes = self.compute_dtype, "float32"
        shapes = self.compute_output_shape(shapes)
        return tuple(map(keras.KerasTensor, shapes, dtypes))


def pair_specs(shapes: Shape) -> list[keras.layers.InputSpec]:
    """`input_spec` of poses [B, H, W, I, a] and activations [B, H, W, I]."""
    is_pair = len(shapes) == 2 and isinstance(shapes[0], (tuple, list))
    poses = shapes[0] if is_pair else ()
    if len(poses) != 5 or tuple(poses[:-1]) != tuple(shapes[1]):
        raise ValueError(
            "The inputs must be a pair: poses [B, H, W, I, a] and activations "
            f"[B, H, W, I] with the same axes B, H, W, I. Received: {shapes}"
        )
    return [keras.layers.InputSpec(shape=(None, *s[1:])) for s in shapes]


class WindowLayer(Layer):
    """Base of layers in which a parent sees the children in a `Window`.

    Args:
      num_capsules: int, O, number of parent types.
      kernel_size: int, k, height and width of the window. None for class
        capsules, which see the whole grid; outputs then have no axes h, w.
      strides: int, the stride in both directions.
      padding: "VALID" or "SAME", in upper or lower case.

    Input: pair of poses [B, H, W, I, a] and activations [B, H, W, I].
    Output: pair of poses [B, h, w, O, A] and activations [B, h, w, O].
    """

    arguments: Names = ("num_capsules", "kernel_size", "strides", "padding")
    num_atoms: int | None = None  # A; None stands for 1

    def __init__(
        self,
        num_capsules: int,
        kernel_size: int | None = None,
        strides: int = 1,
        padding: str = "VALID",
        **kwargs: Any,
    ):
        # Without autocast activations stay float32 under mixed precision.
        super().__init__(autocast=False, **kwargs)
        self.num_capsules = num_capsules
        self.kernel_size = kernel_size
        self.strides = strides
        self.padding = padding.upper()

    def window(self, shape: Shape) -> Window:
        """The `Window` on children of the shape [B, H, W, ...]."""
        window = self.kernel_size, self.strides, self.padding
        return Window(shape[1], shape[2], *window)

    def grid(self, shape: Shape) -> tuple[int, ...]:
        """Size (h, w) of the grid of parents; () for class capsules."""
        return self.window(shape).positions if self.kernel_size else ()

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        _, shape = input_shape
        shape = (shape[0], *self.grid(shape), self.num_capsules)
        return (*shape, self.num_atoms or 1), shape
