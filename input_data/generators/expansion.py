"""The records of expanded MNIST and of MultiMNIST, any range of them."""

import numpy as np

from input_data.pairs import group_by_class
from input_data.records import encode_example
from input_data.registry import Split

# Random numbers reserved for each pair; a multiple of Philox's 4.
_DRAWS = 8
# Pairs drawn at once.
_CHUNK = 512


class ShiftedDigits:
    """Every image at every offset: row offsets outside, columns inside.

    Args:
      data: `LabelledImages` of one channel.
      job: `Job` with shift and pad.

    Attributes:
      num_records: int.
    """

    def __init__(self, data, job):
        self._labels = data.labels.tolist()
        self._shifted = _all_shifts(data.images, job)
        self._offsets = 2 * job.shift + 1
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
      job: `Job`; each seed and split has its own pairs.

    Attributes:
      num_records: int.

    Raises:
      UserError: if all images are of one class.
    """

    def __init__(self, data, job):
        self._order, self._starts, self._counts = group_by_class(data)
        self._labels = data.labels
        self._shifted = _all_shifts(data.images, job)
        self._offsets = 2 * job.shift + 1
        split = list(Split).index(Split(job.split))
        self._key = np.array([job.seed, split], np.uint64)
        self.num_records = len(data) * job.num_pairs

    def records(self, start, stop):
        """Yields the records from `start` to `stop` - 1 as bytes."""
        for first in range(start, stop, _CHUNK):
            yield from self._chunk(first, min(first + _CHUNK, stop))

    def _chunk(self, start, stop):
        first = np.arange(start, stop) % len(self._labels)
        label = self._labels[first]
        others = len(self._labels) - self._counts[label]
        # Philox's raw numbers are the same in every version of NumPy, and
        # those of a record do not depend on the records before it.
        generator = np.random.Philox(key=self._key)
        generator.advance(start * _DRAWS // 4)
        raw = generator.random_raw((stop - start) * _DRAWS) >> np.uint64(32)
        draws = raw.astype(np.int64).reshape(-1, _DRAWS).T
        rank = draws[0] * others >> 32
        row_1, column_1, row_2, column_2 = draws[1:5] * self._offsets >> 32
        # Skip the range of the first digit's class.
        rank += np.where(rank < self._starts[label], 0, self._counts[label])
        second = self._order[rank]
        images_1 = self._shifted[first, row_1, column_1]
        images_2 = self._shifted[second, row_2, column_2]
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


def _all_shifts(images, job):
    """All shifts of padded images: a view uint8 [N, rows, columns, H, W].

    The image at (n, row, column) is moved by row - shift and column - shift.
    """
    _, height, width, _ = images.shape
    border = (job.pad + job.shift, job.pad + job.shift)
    canvas = np.pad(images[..., 0], ((0, 0), border, border))
    size = (height + 2 * job.pad, width + 2 * job.pad)
    windows = np.lib.stride_tricks.sliding_window_view(canvas, size, (1, 2))
    return windows[:, ::-1, ::-1]


def _encode(labels, images):
    height, width = next(iter(images.values())).shape
    pixels = {name: image.tobytes() for name, image in images.items()}
    size = {"height": height, "width": width, "depth": 1}
    return encode_example({**size, **labels, **pixels})
