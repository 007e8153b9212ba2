"""Writes MNIST and MultiMNIST as the reference's record files.

Single digits at every offset, or pairs of overlapping digits, which
`datasets.mnist_record_files` reads. Existing files are kept, so that the same
job continues after an interruption. A record depends on the seed and its
number alone, so that the files are the same with any number of workers.
"""

import concurrent.futures
import dataclasses
import functools
import multiprocessing
import os
import pathlib
import signal
import sys
import threading

import tensorflow as tf
import tqdm

from common.errors import UserError, reading
from common.files import atomic_write, make_folder, remove_partial
from input_data.datasets import digits, mnist
from input_data.formats import mnist_records
from input_data.generators.expansion import DigitPairs, ShiftedDigits
from input_data.records import write_records
from input_data.splits import Split

# Bytes of a record's length and checksums in a TFRecord file.
_FRAME_OVERHEAD = 16


@dataclasses.dataclass(frozen=True)
class Shard:
    """One file: records `first` to `stop` - 1 of all that a job writes."""

    name: str
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
    if num_workers == 1:
        for shard in missing:
            write_shard(job, shard, show_progress=True)
    else:
        _write_in_processes(job, missing, num_workers)
    return [pathlib.Path(job.data_dir) / shard.name for shard in shards]


def prepare(job):
    """Creates the folder of a job and checks its existing files.

    Returns:
      (shards, missing): lists of `Shard`, all and those to write.

    Raises:
      UserError: see `generate`.
    """
    shards = plan_shards(job)
    folder = make_folder(job.data_dir)
    remove_partial(folder)
    missing = []
    for shard in shards:
        path = folder / shard.name
        if path.exists():
            _require_same(path, _contents(job), shard)
        else:
            missing.append(shard)
    return shards, missing


def plan_shards(job):
    """List of the `Shard`s of a job."""
    total = _contents(job).num_records
    split = Split(job.split)
    if not job.multi_targets:
        name, *_ = mnist_records.single_names(split, job.shift)
        return [Shard(name, 0, total)]
    count = -(-total // job.max_shard) if job.max_shard else 1
    name = mnist_records.pairs_name(split, job.shift)
    return [
        Shard(
            mnist_records.shard_name(name, shard, count),
            shard * total // count,
            (shard + 1) * total // count,
        )
        for shard in range(count)
    ]


def write_shard(job, shard, show_progress=False):
    """Writes one file of a job, whole or not at all."""
    path = pathlib.Path(job.data_dir) / shard.name
    records = _contents(job).records(shard.first, shard.stop)
    if show_progress:
        total = shard.stop - shard.first
        records = _progress(records, total, f" records of {shard.name}")
    with atomic_write(path) as partial:
        write_records(partial, records)


def _write_in_processes(job, shards, num_workers):
    # Forked processes would share the locks of TensorFlow's threads.
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(
        num_workers, context, _start_worker
    ) as pool:
        try:
            done = pool.map(functools.partial(write_shard, job), shards)
            for _ in _progress(done, len(shards), " files"):
                pass
        except BaseException:
            for worker in multiprocessing.active_children():
                worker.terminate()
            raise


def _start_worker():
    """Leaves Ctrl-C to the main process and ends with it."""

    def end_with_parent():
        multiprocessing.parent_process().join()
        os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_with_parent, daemon=True).start()


def _progress(items, total, unit):
    return tqdm.tqdm(
        items,
        total=total,
        unit=unit,
        file=sys.stdout,
        mininterval=0.1 if sys.stdout.isatty() else 10,
    )


@functools.lru_cache(maxsize=1)
def _contents(job):
    """The records of a job; a process that writes many files reads once."""
    split = Split(job.split)
    if job.dataset == "digits":
        data = digits.read_split(split)
    else:
        data = mnist.read_split(split, job.data_dir)
    if not job.multi_targets:
        return ShiftedDigits(data, job.shift, job.pad)
    return DigitPairs(data, job.shift, job.pad, job.num_pairs, job.seed, split)


def _require_same(path, contents, shard):
    """Raises UserError if a file was written with other settings.

    The name of a file does not tell its padding, seed and number of pairs.
    """
    (record,) = contents.records(shard.first, shard.first + 1)
    size = (shard.stop - shard.first) * (len(record) + _FRAME_OVERHEAD)
    with reading(path):
        first = next(iter(tf.data.TFRecordDataset(str(path)))).numpy()
    if first != record or path.stat().st_size != size:
        raise UserError(
            f"{path} was written with other settings; remove it or choose "
            "another --data_dir"
        )
