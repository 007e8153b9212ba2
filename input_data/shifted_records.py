"""Writes MNIST and MultiMNIST as record files in the reference's format.

Each record depends only on its index and on the job's settings, so that the
files are the same with any number of workers.
"""

import concurrent.futures
import functools
import multiprocessing
import os
import shutil
import signal
import sys
import threading

import numpy as np
import tqdm

from common.errors import Interrupted, UserError, handling_signals, user_errors
from common.files import make_folder, remove_partial
from input_data.datasets import digits, mnist
from input_data.pairs import group_by_class
from input_data.records import FRAME_OVERHEAD, encode_example, write_records
from input_data.registry import Split

_DRAWS = 8  # random numbers for each pair; a multiple of Philox's 4
_CHUNK = 512  # records made at once


def generate(job, num_workers=1):
    """Writes missing files of a `Job`. Raises Interrupted on a signal."""

    def stop(number, frame):
        raise Interrupted("Interrupted; complete files are kept.", number)

    with handling_signals(stop):
        shards, missing = prepare(job)
        _require_space(job, missing)
        with tqdm.tqdm(total=len(missing), unit="file", file=sys.stdout) as bar:
            for _ in _write(job, missing, num_workers):
                bar.update()
    print(f"{len(shards)} files, {shards[0][0]} to {shards[-1][0].name}")


def _write(job, shards, num_workers):
    write = functools.partial(write_shard, job)
    if num_workers == 1:
        yield from map(write, shards)
        return
    # Forked processes would share the locks of TensorFlow's threads.
    context = multiprocessing.get_context("spawn")
    options = num_workers, context, _follow_parent
    with concurrent.futures.ProcessPoolExecutor(*options) as pool:
        try:
            yield from pool.map(write, shards)
        except BaseException:
            for worker in multiprocessing.active_children():
                worker.terminate()
            raise


def _require_space(job, shards):
    """Prints the size of files; raises UserError if the disk is too small."""
    (record,) = _records(job, 0, 1)
    count = sum(stop - start for _, start, stop in shards)
    size = count * (len(record) + FRAME_OVERHEAD)
    print(f"Writing {count:,} records, {size / 1e9:.1f} GB", flush=True)
    free = shutil.disk_usage(job.data_dir).free
    if size > free:
        raise UserError(f"{job.data_dir} has only {free / 1e9:.1f} GB free")


def _follow_parent():
    """Leaves Ctrl-C to the main process; ends when that is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def wait():
        multiprocessing.parent_process().join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def prepare(job):
    """Creates the folder of a job and checks the job's existing files.

    Returns lists of (path, start, stop), of all files and of missing files. A
    file has the records from `start` to `stop` - 1 of the job.
    """
    split = Split(job.split)
    num_images = len(read_digits(job.dataset, split, job.data_dir))
    if job.multi_targets:
        total = num_images * job.num_pairs
        count = -(-total // job.max_shard) if job.max_shard else 1
        name = f"multi{split.value}_{job.shift}shifted_mnist.tfrecords"
        names = mnist.shard_names(name, count)
    else:
        total = num_images * (2 * job.shift + 1) ** 2
        names = mnist.single_names(split, job.shift)[:1]
    folder, shards = make_folder(job.data_dir), []
    for number, name in enumerate(names):
        remove_partial(folder, name)
        ends = number * total // len(names), (number + 1) * total // len(names)
        shards.append((folder / name, *ends))
    return shards, [shard for shard in shards if not _exists(job, *shard)]


def write_shard(job, shard):
    """Writes one file of a job, whole or not at all."""
    path, start, stop = shard
    write_records(path, _records(job, start, stop))


def _exists(job, path, start, stop):
    """Whether a file exists; raises UserError if it has other records."""
    if not path.exists():
        return False
    (record,) = _records(job, start, start + 1)
    frame_bytes = len(record) + FRAME_OVERHEAD
    with user_errors(path), open(path, "rb") as file:
        is_same = record in file.read(frame_bytes)
        is_same &= file.seek(0, os.SEEK_END) == (stop - start) * frame_bytes
    if not is_same:
        raise UserError(
            f"{path} was written with other settings; remove it or choose "
            "another --data_dir"
        )
    return True


@functools.lru_cache(maxsize=1)
def read_digits(dataset, split, data_dir):
    """The `LabeledImages` of a `Split` of "digits" or "mnist", cached."""
    if dataset == "digits":
        return digits.read_split(split)
    return mnist.read_split(split, data_dir)


def _records(job, start, stop):
    data = read_digits(job.dataset, Split(job.split), job.data_dir)
    make_records = digit_pairs if job.multi_targets else shifted_digits
    return make_records(data, job, start, stop)


def shifted_digits(data, job, start, stop):
    """Yields records `start` to `stop` - 1, each of one shifted digit.

    Each of the `LabeledImages` `data`, of one channel, has a record at each
    offset. The order is by image, then by row offset, then by column offset.
    """
    shape = (len(data), 2 * job.shift + 1, 2 * job.shift + 1)
    for numbers in _chunks(start, stop):
        image, row, column = np.unravel_index(numbers, shape)
        shifted = _shift(data.images[image], row, column, job)
        yield from _encode(mnist.SINGLE, [data.labels[image]], [shifted])


def digit_pairs(data, job, start, stop):
    """Yields records `start` to `stop` - 1 of two overlapping digits.

    `data` are N `LabeledImages` of one channel. The first digit of record k is
    image k modulo N. The second, of another class, and the offsets are uniform.
    Pixels are added, up to 255 (paper, section 6).
    """
    order, starts, counts = group_by_class(data)
    split = list(Split).index(Split(job.split))
    key = np.array([job.seed, split], np.uint64)
    for numbers in _chunks(start, stop):
        first = numbers % len(data)
        label = data.labels[first]
        # Philox's raw numbers are the same in every version of NumPy. Those of
        # a record do not depend on the records before it.
        generator = np.random.Philox(key=key)
        generator.advance(int(numbers[0]) * _DRAWS // 4)
        raw = generator.random_raw(len(numbers) * _DRAWS) >> np.uint64(32)
        draws = raw.astype(np.int64).reshape(-1, _DRAWS).T
        rank = draws[0] * (len(data) - counts[label]) >> 32
        offsets = draws[1:5] * (2 * job.shift + 1) >> 32
        # Skip the range of the first digit's class.
        rank += np.where(rank < starts[label], 0, counts[label])
        second = order[rank]
        images_1 = _shift(data.images[first], *offsets[:2], job)
        images_2 = _shift(data.images[second], *offsets[2:], job)
        merged = images_1 + np.minimum(images_2, 255 - images_1)
        labels = [label, data.labels[second]]
        yield from _encode(mnist.PAIR, labels, [images_1, images_2, merged])


def _chunks(start, stop):
    for first in range(start, stop, _CHUNK):
        yield np.arange(first, min(first + _CHUNK, stop))


def _shift(images, row, column, job):
    """Pads images [B, H, W, 1], and moves them by the offsets - job.shift."""
    border = (job.pad + job.shift, job.pad + job.shift)
    canvas = np.pad(images[..., 0], ((0, 0), border, border))
    size = np.add(images.shape[1:3], 2 * job.pad)
    windows = np.lib.stride_tricks.sliding_window_view(canvas, size, (1, 2))
    last = 2 * job.shift
    return windows[np.arange(len(images)), last - row, last - column]


def _encode(keys, labels, images):
    """Yields records from lists of labels [B] and of images [B, H, W]."""
    _, height, width = images[0].shape
    size = {"height": height, "width": width, "depth": 1}
    names = sum(keys, ())
    columns = [*labels, *(map(np.ndarray.tobytes, part) for part in images)]
    for values in zip(*columns, strict=True):
        yield encode_example(size | dict(zip(names, values, strict=True)))
