"""Writes MNIST and MultiMNIST as the reference's record files.

Single digits at every offset, or pairs of overlapping digits.
`datasets.mnist_record_files` reads both. Files that are there are kept, so
that after an interruption the same job makes what is missing. Each record
depends on the seed and its number alone: the same settings give the same bytes
with any number of workers.
"""

import concurrent.futures
import contextlib
import dataclasses
import functools
import multiprocessing
import pathlib
import shutil
import signal

import tensorflow as tf

from input_data.datasets import digits, mnist
from input_data.formats import mnist_records
from input_data.formats.tfrecords import FRAME_OVERHEAD, TFRecordFiles
from input_data.generators.expansion import DigitPairs, ShiftedDigits
from input_data.splits import Split
from old import durable
from old.errors import UserError
from old.processes import end_with_parent
from old.progress import Progress

# Records that are made at once: little memory, and few calls for each.
_CHUNK = 512
_SECONDS_BETWEEN_LOOKS = 0.5


@dataclasses.dataclass(frozen=True)
class Shard:
    """One file: records `first` to `stop` - 1 of all that a job writes."""

    name: str
    first: int
    stop: int


def plan_shards(job):
    """The files of a job.

    Args:
      job: `Job`.

    Returns:
      List of `Shard`.

    Raises:
      UserError: if the job's settings or its images do not work.
    """
    if not job.multi_targets and job.max_shard:
        raise UserError(
            "--max_shard is for --multi_targets: single digits are read from "
            "one file"
        )
    total = _contents(job).num_records
    if not job.multi_targets:
        name, *_ = mnist_records.single_names(Split(job.split), job.shift)
        return [Shard(name, 0, total)]
    count = -(-total // job.max_shard) if job.max_shard else 1
    if count > mnist_records.MAX_SHARDS:
        raise UserError(
            f"--max_shard={job.max_shard} makes {count:,} files of {total:,} "
            f"records; at most {mnist_records.MAX_SHARDS:,} can be read"
        )
    name = mnist_records.pairs_name(Split(job.split), job.shift)
    return [
        Shard(
            mnist_records.shard_name(name, shard, count),
            shard * total // count,
            (shard + 1) * total // count,
        )
        for shard in range(count)
    ]


def prepare(job):
    """Makes a job's folder and looks what there is to do.

    Args:
      job: `Job`.

    Returns:
      (shards, missing): lists of `Shard`, all and those still to be written.

    Raises:
      UserError: if settings or images do not work, files are there with other
        contents, or the disk is too small.
    """
    shards = plan_shards(job)  # first, lest a wrong name becomes a folder
    folder = durable.make_folder(job.data_dir)
    durable.remove_leftovers(folder)
    missing = _missing_shards(job, shards)
    _require_space(folder, job, missing)
    return shards, missing


def _missing_shards(job, shards):
    missing = []
    for shard in shards:
        path = pathlib.Path(job.data_dir) / shard.name
        if path.exists():
            _require_same(path, _contents(job), shard)
        else:
            missing.append(shard)
    return missing


def write_shard(job, shard, report=lambda count: None):
    """Writes one file, unless it is there: whole, or not at all.

    Args:
      job: `Job`.
      shard: `Shard`, one of `plan_shards`.
      report: function that is told of every so many records done.

    Raises:
      UserError: if the file cannot be written, or is there with other
        contents.
    """
    contents = _contents(job)
    final = pathlib.Path(job.data_dir) / shard.name
    if final.exists():
        _require_same(final, contents, shard)
        return
    with durable.whole_file(final) as partial:
        write_records(contents, shard.first, shard.stop, partial, report)


def write_records(contents, first, stop, path, report=lambda count: None):
    """Writes a part of the records to a file.

    Args:
      contents: `ShiftedDigits` or `DigitPairs`.
      first: int, the first record.
      stop: int, the one after the last.
      path: path of the file.
      report: function that is told of every so many records done.
    """
    with tf.io.TFRecordWriter(str(path)) as writer:
        for start in range(first, stop, _CHUNK):
            end = min(start + _CHUNK, stop)
            for row in contents.encode(start, end):
                writer.write(row.tobytes())
            report(end - start)


def generate(job, num_workers=1):
    """Writes all files of a job that are not there yet, with a progress bar.

    Args:
      job: `Job`.
      num_workers: int, processes.

    Returns:
      List of the paths of all files.

    Raises:
      UserError: if settings or images do not work, or files cannot be
        written, or are there with other contents.
    """
    shards, missing = prepare(job)
    total = shards[-1].stop
    done = total - sum(shard.stop - shard.first for shard in missing)
    progress = Progress(done, total, name="record")

    def report(count):
        nonlocal done
        done += count
        progress.update(done, {})

    if min(num_workers, len(missing)) > 1:
        _write_in_processes(job, missing, num_workers, report)
    else:
        for shard in missing:
            write_shard(job, shard, report)
    return [pathlib.Path(job.data_dir, shard.name) for shard in shards]


def _require_space(folder, job, shards):
    """Says how large a job's missing files are, and refuses too many.

    All records of a job are of one size.
    """
    count = sum(shard.stop - shard.first for shard in shards)
    (record,) = _contents(job).encode(0, 1)
    size = count * (len(record) + FRAME_OVERHEAD)
    free = shutil.disk_usage(folder).free
    print(f"{count} records to write: {size / 1e9:.3g} GB", flush=True)
    if size > free:
        pairs, single = "fewer pairs by --num_pairs", "a smaller --shift"
        fewer = pairs if job.multi_targets else single
        raise UserError(
            f"--data_dir={folder} has {free / 1e9:.3g} GB free, but "
            f"{count} records take {size / 1e9:.3g} GB: choose {fewer}, or "
            "another folder"
        )


def _write_in_processes(job, shards, num_workers, report):
    # Forked processes would share the locks of TensorFlow's threads.
    context = multiprocessing.get_context("spawn")
    counter, stop = context.Value("q", 0), context.Event()
    reported = 0
    with concurrent.futures.ProcessPoolExecutor(
        min(num_workers, len(shards)), context, _start_worker, (counter, stop)
    ) as pool:
        try:
            with _interrupts_held_back():
                pending = {
                    pool.submit(_write_in_worker, job, shard)
                    for shard in shards
                }
            while pending:
                finished, pending = concurrent.futures.wait(
                    pending, _SECONDS_BETWEEN_LOOKS
                )
                count = counter.value
                report(count - reported)
                reported = count
                for future in finished:
                    future.result()
        except concurrent.futures.process.BrokenProcessPool:
            raise UserError(
                "a worker process was ended from outside (out of memory?): "
                "start again to make the files that are missing"
            ) from None
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def _interrupts_held_back():
    """Ctrl-C goes to all processes; those started here leave it to this one."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _StoppedError(Exception):
    """Ends a worker's shard because the whole job ends early."""


_worker_counter = None
_worker_stop = None


def _start_worker(counter, stop):
    global _worker_counter, _worker_stop
    _worker_counter, _worker_stop = counter, stop
    end_with_parent()


def _write_in_worker(job, shard):
    def report(count):
        if _worker_stop.is_set():
            raise _StoppedError
        with _worker_counter.get_lock():
            _worker_counter.value += count

    write_shard(job, shard, report)


@functools.lru_cache(maxsize=1)
def _contents(job):
    """The records of a job; kept, as one process writes many shards."""
    split = Split(job.split)
    if job.dataset == "digits":
        data = digits.read_split(split)
    else:
        data = mnist.read_split(split, job.data_dir)
    if not job.multi_targets:
        return ShiftedDigits(data, job.shift, job.pad)
    return DigitPairs(data, job.shift, job.pad, job.num_pairs, job.seed, split)


def _require_same(path, contents, shard):
    """Raises UserError if a file is not what would be written."""
    count = shard.stop - shard.first
    found = TFRecordFiles([path])
    same = len(found) == count and all(
        found.read([place])[0]
        == contents.encode(shard.first + place, shard.first + place + 1)[
            0
        ].tobytes()
        for place in (0, count - 1)
    )
    if not same:
        raise UserError(
            f"{path} is there already, written with other settings or from "
            "other images: move it away, or name another --data_dir"
        )
