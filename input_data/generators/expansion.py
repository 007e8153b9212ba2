"""The records of expanded MNIST and of MultiMNIST, any part of them at once."""

import numpy as np

from input_data.formats.image_records import Encoder
from input_data.formats.mnist_records import PAIR, SINGLE
from input_data.memory import require_memory_for_padded
from input_data.pairs import group_by_class
from input_data.splits import Split
from input_data.transforms.shifting import require_possible_shift

# Random numbers set aside for each pair; a multiple of Philox's 4.
_DRAWS = 8


class ShiftedDigits:
    """Every image at every offset: row offsets outside, columns inside.

    Args:
      data: `LabelledImages` of one channel.
      shift: int, pixels that an image moves at most along each axis.
      pad: int, black pixels added on each side before.

    Attributes:
      num_records: int.
    """

    def __init__(self, data, shift, pad):
        self._labels = data.labels
        self._offsets = 2 * shift + 1
        self._windows = _Windows(data.images, shift, pad)
        self._encoder = Encoder(SINGLE, self._windows.shape)
        self.num_records = len(data) * self._offsets**2

    def encode(self, start, stop):
        """The records from `start` to `stop` - 1, uint8 [N, bytes]."""
        image, offset = np.divmod(np.arange(start, stop), self._offsets**2)
        row, column = np.divmod(offset, self._offsets)
        return self._encoder.encode(
            [self._labels[image]], [self._windows.take(image, row, column)]
        )


class DigitPairs:
    """Two overlapping digits of different classes, num_pairs for each image.

    Record k has as its first digit image k modulo N. The second is uniform
    among the images of other classes, all offsets are uniform, and the two
    are merged by min(255, a + b) (the paper's section 6).

    Args:
      data: `LabelledImages` of one channel.
      shift: int, pixels that an image moves at most along each axis.
      pad: int, black pixels added on each side before.
      num_pairs: int, pairs for each image.
      seed: int, in [0, 2^64): fixes partners and offsets.
      split: `Split`, of which each has its own.

    Attributes:
      num_records: int.

    Raises:
      UserError: if all images are of one class.
    """

    def __init__(self, data, shift, pad, num_pairs, seed, split):
        self._order, self._starts, self._counts = group_by_class(data)
        self._labels = data.labels
        self._offsets = 2 * shift + 1
        self._windows = _Windows(data.images, shift, pad)
        self._encoder = Encoder(PAIR, self._windows.shape)
        # One stream for each split, so that no two share their offsets.
        self._key = np.array([seed, list(Split).index(split)], np.uint64)
        self.num_records = len(data) * num_pairs

    def encode(self, start, stop):
        """The records from `start` to `stop` - 1, uint8 [N, bytes]."""
        first = np.arange(start, stop) % len(self._labels)
        label = self._labels[first]
        others = len(self._labels) - self._counts[label]
        rank, *offsets = self._draw(start, stop, [others] + 4 * [self._offsets])
        # Among the images of other classes, which have a gap.
        rank += np.where(rank < self._starts[label], 0, self._counts[label])
        second = self._order[rank]
        a = self._windows.take(first, *offsets[:2])
        b = self._windows.take(second, *offsets[2:])
        merged = a + np.minimum(b, 255 - a)
        return self._encoder.encode(
            [label, self._labels[second]], [a, b, merged]
        )

    def _draw(self, start, stop, bounds):
        """Random integers below each bound, for every record.

        The raw numbers of Philox are the same in every version of NumPy, and
        those of a record can be had without those before.

        Args:
          start: int, the first record.
          stop: int, the one after the last.
          bounds: list of integers or arrays [N].

        Returns:
          List of int64 arrays [N].
        """
        generator = np.random.Philox(key=self._key)
        generator.advance(start * _DRAWS // 4)
        raw = generator.random_raw((stop - start) * _DRAWS)
        high = (raw >> np.uint64(32)).astype(np.int64).reshape(-1, _DRAWS)
        return [
            high[:, place] * bound >> 32 for place, bound in enumerate(bounds)
        ]


class _Windows:
    """Grey images, padded and at any offset, as parts of larger black images.

    Attributes:
      shape: (height, width, depth) of the padded images.
    """

    def __init__(self, images, shift, pad):
        _, height, width, _ = images.shape
        require_possible_shift(shift, pad, (height, width))
        self.shape = (height + 2 * pad, width + 2 * pad, 1)
        require_memory_for_padded(len(images), images.shape[1:], pad, shift)
        border = (pad + shift, pad + shift)
        canvas = np.pad(images.squeeze(3), ((0, 0), border, border))
        self._shift = shift
        self._windows = np.lib.stride_tricks.sliding_window_view(
            canvas, self.shape[:2], axis=(1, 2)
        )

    def take(self, image, row, column):
        """Images [N, H, W, 1] that moved by row - shift and column - shift."""
        last = 2 * self._shift
        return self._windows[image, last - row, last - column, ..., np.newaxis]
