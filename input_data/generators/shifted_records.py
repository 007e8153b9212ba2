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

import tensorflow as tf
import tqdm

from common.errors import UserError, reading
from common.files import atomic_write, make_folder, remove_partial
from input_data.datasets import digits, mnist, mnist_record_files
from input_data.generators.expansion import DigitPairs, ShiftedDigits
from input_data.records import FRAME_OVERHEAD, write_records
from input_data.registry import Split


class Shard(typing.NamedTuple):
    """One file: records `first` to `stop` - 1 of all that a job writes."""

    path: pathlib.Path
    first: int
    stop: int


def generate(job, num_workers=1):
    """Writes all files of a job that do not exist yet.

    Args:
      job: `Job`.
      num_workers: int, processes.

    Returns:
      List of the paths of all files.

    Raises:
      UserError: if images are missing or damaged, a file cannot be written,
        or an existing file has other records.
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

    Raises:
      UserError: see `generate`.
    """
    split, total = Split(job.split), _contents(job).num_records
    if job.multi_targets:
        count = -(-total // job.max_shard) if job.max_shard else 1
        name = mnist_record_files.pairs_name(split, job.shift)
        names = [
            mnist_record_files.shard_name(name, number, count)
            for number in range(count)
        ]
    else:
        names = mnist_record_files.single_names(split, job.shift)[:1]
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
