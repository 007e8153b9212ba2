"""The records of expanded MNIST and of MultiMNIST, any range of them."""

import numpy as np

from input_data.pairs import group_by_class
from input_data.records import encode_example
from input_data.splits import Split

# Random numbers reserved for each pair; a multiple of Philox's 4.
_DRAWS = 8
# Pairs drawn at once.
_CHUNK = 512


class ShiftedDigits:
    """Every image at every offset: row offsets outside, columns inside.

    Args:
      data: `LabelledImages` of one channel.
      shift: int, largest offset along each axis, in pixels.
      pad: int, black pixels added on each side before shifting.

    Attributes:
      num_records: int.
    """

    def __init__(self, data, shift, pad):
        self._labels = data.labels.tolist()
        self._offsets = 2 * shift + 1
        self._shifted = _all_shifts(data.images, shift, pad)
        self.num_records = len(data) * self._offsets**2

    def records(self, start, stop):
        """Yields the records from `start` to `stop` - 1 as bytes."""
        for number in range(start, stop):
            image, offset = divmod(number, self._offsets**2)
            row, column = divmod(offset, self._offsets)
            yield _encode(
                {"label": self._labels[image]},
                {"image_raw": self._shifted[image, row, column]},
            )


class DigitPairs:
    """Two overlapping digits of different classes, num_pairs for each image.

    The first digit of record k is image k modulo N. The second is uniform
    among the images of other classes, all offsets are uniform, and the two
    are merged by min(255, a + b) (section 6 of the paper).

    Args:
      data: `LabelledImages` of one channel.
      shift: int, largest offset along each axis, in pixels.
      pad: int, black pixels added on each side before shifting.
      num_pairs: int, pairs for each image.
      seed: int, fixes partners and offsets.
      split: `Split`; each has its own pairs.

    Attributes:
      num_records: int.

    Raises:
      UserError: if all images are of one class.
    """

    def __init__(self, data, shift, pad, num_pairs, seed, split):
        self._order, self._starts, self._counts = group_by_class(data)
        self._labels = data.labels
        self._offsets = 2 * shift + 1
        self._shifted = _all_shifts(data.images, shift, pad)
        self._key = np.array([seed, list(Split).index(split)], np.uint64)
        self.num_records = len(data) * num_pairs

    def records(self, start, stop):
        """Yields the records from `start` to `stop` - 1 as bytes."""
        for first in range(start, stop, _CHUNK):
            yield from self._chunk(first, min(first + _CHUNK, stop))

    def _chunk(self, start, stop):
        first = np.arange(start, stop) % len(self._labels)
        label = self._labels[first]
        others = len(self._labels) - self._counts[label]
        rank, *offsets = self._draw(start, stop, [others] + 4 * [self._offsets])
        # Skip the range of the first digit's class.
        rank += np.where(rank < self._starts[label], 0, self._counts[label])
        second = self._order[rank]
        images_1 = self._shifted[first, offsets[0], offsets[1]]
        images_2 = self._shifted[second, offsets[2], offsets[3]]
        merged = images_1 + np.minimum(images_2, 255 - images_1)
        for number in range(stop - start):
            yield _encode(
                {
                    "label_1": int(label[number]),
                    "label_2": int(self._labels[second[number]]),
                },
                {
                    "image_raw_1": images_1[number],
                    "image_raw_2": images_2[number],
                    "merged_raw": merged[number],
                },
            )

    def _draw(self, start, stop, bounds):
        """Draws integers below each bound for the records start to stop - 1.

        Philox's raw numbers are the same in every version of NumPy, and those
        of a record do not depend on the records before it.

        Args:
          start, stop: int.
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


def _all_shifts(images, shift, pad):
    """All shifts of padded images: a view uint8 [N, rows, columns, H, W].

    The image at (n, row, column) is moved by row - shift and column - shift.
    """
    _, height, width, _ = images.shape
    border = (pad + shift, pad + shift)
    canvas = np.pad(images[..., 0], ((0, 0), border, border))
    windows = np.lib.stride_tricks.sliding_window_view(
        canvas, (height + 2 * pad, width + 2 * pad), axis=(1, 2)
    )
    return windows[:, ::-1, ::-1]


def _encode(labels, images):
    height, width = next(iter(images.values())).shape
    pixels = {name: image.tobytes() for name, image in images.items()}
    size = {"height": height, "width": width, "depth": 1}
    return encode_example({**size, **labels, **pixels})
