"""Writes MNIST and MultiMNIST as the reference's record files.

Existing files are kept, so that the same job continues after an interruption.
A record depends on the seed and its number alone: the files are the same with
any number of workers.
"""

import concurrent.futures
import functools
import multiprocessing
import os
import pathlib
import signal
import sys
import threading
import typing

import numpy as np
import tensorflow as tf
import tqdm

from common.errors import UserError, reading
from common.files import atomic_write, make_folder, remove_partial
from input_data.datasets import digits, mnist
from input_data.pairs import group_by_class
from input_data.records import FRAME_OVERHEAD, encode_example, write_records
from input_data.registry import Split

# Random numbers reserved for each pair; a multiple of Philox's 4.
_DRAWS = 8
# Pairs drawn at once.
_CHUNK = 512


class Shard(typing.NamedTuple):
    """One file: records `first` to `stop` - 1 of all that a job writes."""

    path: pathlib.Path
    first: int
    stop: int


def generate(job, num_workers=1):
    """Writes all files of a `Job` that do not exist yet; returns all paths.

    Raises:
      UserError: if an existing file has other records.
    """
    shards, missing = prepare(job)
    write = functools.partial(write_shard, job)
    if num_workers == 1:
        _finish(map(write, missing), len(missing))
    else:
        # Forked processes would share the locks of TensorFlow's threads.
        context = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(
            num_workers, context, _start_worker
        ) as pool:
            try:
                _finish(pool.map(write, missing), len(missing))
            except BaseException:
                for worker in multiprocessing.active_children():
                    worker.terminate()
                raise
    return [shard.path for shard in shards]


def prepare(job):
    """Creates the folder of a job and checks its existing files.

    Returns:
      (shards, missing): lists of `Shard`, all and those to write.
    """
    split, total = Split(job.split), _contents(job).num_records
    if job.multi_targets:
        count = -(-total // job.max_shard) if job.max_shard else 1
        name = mnist.pairs_name(split, job.shift)
        names = mnist.shard_names(name, count)
    else:
        names = mnist.single_names(split, job.shift)[:1]
    folder = make_folder(job.data_dir)
    remove_partial(folder)
    ends = [number * total // len(names) for number in range(len(names) + 1)]
    shards = [
        Shard(folder / name, *bounds)
        for name, *bounds in zip(names, ends, ends[1:], strict=False)
    ]
    return shards, [shard for shard in shards if not _exists(job, shard)]


def write_shard(job, shard):
    """Writes one file of a job, whole or not at all."""
    with atomic_write(shard.path) as partial:
        records = _contents(job).records(shard.first, shard.stop)
        write_records(partial, records)


def _finish(results, total):
    interval = 0.1 if sys.stdout.isatty() else 10
    options = {"file": sys.stdout, "mininterval": interval, "unit": "file"}
    for _ in tqdm.tqdm(results, total=total, **options):
        pass


def _start_worker():
    """Leaves Ctrl-C to the main process and ends with it."""

    def end_with_parent():
        multiprocessing.parent_process().join()
        os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_with_parent, daemon=True).start()


@functools.lru_cache(maxsize=1)
def _contents(job):
    """The records of a job; a process that writes many files reads once."""
    if job.dataset == "digits":
        data = digits.read_split(Split(job.split))
    else:
        data = mnist.read_split(Split(job.split), job.data_dir)
    return (DigitPairs if job.multi_targets else ShiftedDigits)(data, job)


def _exists(job, shard):
    """Whether a file exists; raises UserError if it has other records.

    The name of a file does not tell its padding, seed and number of pairs.
    """
    if not shard.path.exists():
        return False
    (record,) = _contents(job).records(shard.first, shard.first + 1)
    size = (shard.stop - shard.first) * (len(record) + FRAME_OVERHEAD)
    with reading(shard.path):
        dataset = tf.data.TFRecordDataset(str(shard.path))
        first = next(dataset.as_numpy_iterator())
    if first != record or shard.path.stat().st_size != size:
        raise UserError(
            f"{shard.path} was written with other settings; remove it or "
            "choose another --data_dir"
        )
    return True


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
