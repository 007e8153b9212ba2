"""The receptive fields of a convolution over capsules of a grid."""

import numpy as np
from keras import ops

# Less than any log density; finite, so that differences are too.
_NOTHING = -1e30


def positions_of(size: int, kernel: int, strides: int, padding: str) -> int:
    """Positions that a window takes along `size` pixels; 0 if it is larger."""
    if padding.upper() == "VALID":
        size = size - kernel + 1
    return max(0, -(-size // strides))


def zeros_around(
    size: int, kernel: int, strides: int, padding: str
) -> tuple[int, int]:
    """As many as the positions need, the odd one after; none if VALID."""
    positions = positions_of(size, kernel, strides, padding)
    missing = max((positions - 1) * strides + kernel - size, 0)
    return missing // 2, missing - missing // 2


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
        nothing = 0.0 if combine is ops.add else _NOTHING
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
