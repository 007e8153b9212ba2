import dataclasses
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import tracemalloc
import types

import numpy as np
import pytest
import tensorflow as tf

from input_data import features as keys
from input_data import registry
from input_data.datasets import digits
from input_data.generators import shifted_records
from input_data.generators.expansion import DigitPairs
from input_data.generators.job import Job
from input_data.options import Options
from input_data.splits import Split
from old.errors import UserError
from old.fields import meanings
from testing.tiny_files import write_records

COMMAND = pathlib.Path(__file__).parents[1] / "mnist" / "mnist_shift.py"


def pairs_job(folder, **changes):
    job = Job(
        str(folder),
        dataset="digits",
        split=Split.TEST,
        shift=1,
        pad=1,
        multi_targets=True,
        num_pairs=3,
        max_shard=400,
        seed=5,
    )
    return dataclasses.replace(job, **changes)


def read_examples(path):
    return [
        {
            key: (feature.int64_list.value or feature.bytes_list.value)[0]
            for key, feature in tf.train.Example.FromString(
                record.numpy()
            ).features.feature.items()
        }
        for record in tf.data.TFRecordDataset(str(path))
    ]


def contents_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("split", list(Split))
def test_reader_finds_what_was_written(tmp_path, split):
    shift = 1 if split.is_training else 0
    job = Job(str(tmp_path), dataset="digits", split=split, shift=shift)
    shifted_records.generate(job)
    source = digits.read_split(split)
    options = Options(data_dir=str(tmp_path), shift=1, eval_size=10**6)
    pipeline = registry.load("mnist", split, options)
    copies = (2 * shift + 1) ** 2
    assert pipeline.spec.num_examples == len(source) * copies
    x, _ = next(iter(pipeline.evaluation_batches(copies)))
    np.testing.assert_array_equal(
        x[keys.RECONS_LABEL], [source.labels[0]] * copies
    )
    np.testing.assert_allclose(
        x[keys.IMAGES][copies // 2], source.images[0] / 255.0, atol=1e-6
    )

    job = pairs_job(tmp_path, split=split, num_pairs=2, max_shard=1000)
    paths = shifted_records.generate(job)
    count = 2 * len(source)
    num_shards = -(-count // 1000)
    prefix = tmp_path / f"multi{split.value}_1shifted_mnist.tfrecords"
    assert [str(path) for path in paths] == [
        f"{prefix}-{shard:05d}-of-{num_shards:05d}"
        for shard in range(num_shards)
    ]
    options = Options(
        data_dir=f"{prefix}@{num_shards}", num_targets=2, eval_size=10**6
    )
    pipeline = registry.load("mnist", split, options)
    assert pipeline.spec.num_examples == count
    assert pipeline.spec.shape == keys.ImageShape(30, 30, 1, 10)


def test_shards_hold_at_most_max_shard_and_are_cut_anywhere_alike(tmp_path):
    paths = shifted_records.generate(pairs_job(tmp_path / "a"))
    counts = [len(read_examples(path)) for path in paths]
    assert counts == [360, 360, 360]
    (whole,) = shifted_records.generate(pairs_job(tmp_path / "b", max_shard=0))
    assert whole.name.endswith("-00000-of-00001")
    joined = b"".join(path.read_bytes() for path in paths)
    assert joined == whole.read_bytes()


@pytest.mark.slow
def test_command_with_workers_from_another_folder(tmp_path):
    alone = tmp_path / "alone"
    shifted_records.generate(pairs_job(alone))
    together = tmp_path / "together"
    command = [
        *(sys.executable, str(COMMAND), f"--data_dir={together}"),
        *("--dataset=digits", "--split=test", "--shift=1", "--pad=1"),
        *("--multi_targets=true", "--num_pairs=3", "--max_shard=400"),
        *("--seed=5", "--num_workers=2"),
    ]
    result = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "record 1080/1080" in result.stdout
    assert "records/s" in result.stdout
    assert contents_of(together) == contents_of(alone)

    result = subprocess.run(
        [*command, "--seed=6"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert "is there already, written with other settings" in result.stderr
    assert contents_of(together) == contents_of(alone)


def test_interruption_leaves_no_half_file_and_is_made_up_for(
    tmp_path, monkeypatch
):
    shifted_records.generate(pairs_job(tmp_path / "whole"))
    folder = tmp_path / "folder"
    job = pairs_job(folder)

    class Interrupted:
        def __init__(self, *_, **__):
            pass

        def update(self, done, _):
            if done > 400:  # in the second of three files
                raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shifted_records, "Progress", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            shifted_records.generate(job)
    (kept,) = folder.iterdir()
    before = kept.stat()
    shifted_records.generate(job)
    assert contents_of(folder) == contents_of(tmp_path / "whole")
    assert kept.stat().st_mtime_ns == before.st_mtime_ns
    assert kept.stat().st_ino == before.st_ino


@pytest.mark.slow
def test_killed_process_leaves_only_what_the_next_start_removes(tmp_path):
    process = subprocess.Popen(
        [
            *(sys.executable, str(COMMAND), f"--data_dir={tmp_path}"),
            *("--dataset=digits", "--split=test", "--multi_targets"),
            *("--num_pairs=2000", "--seed=5"),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while not any(tmp_path.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    (leftover,) = tmp_path.iterdir()
    assert leftover.name.startswith(".multitest")
    # What a live process writes stays.
    live = leftover.with_name(
        leftover.name.replace(f".{process.pid}.", f".{os.getpid()}.")
    )
    live.mkdir()
    job = pairs_job(tmp_path, max_shard=0)
    (path,) = shifted_records.generate(job)
    assert sorted(tmp_path.iterdir()) == sorted([live, path])


def live_processes(group):
    """How many processes of a group run, apart from those only not reaped."""
    count = 0
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, its_group, *_ = (
                path.read_text().rpartition(")")[2].split()
            )
        except (FileNotFoundError, ProcessLookupError):
            continue
        count += int(its_group) == group and state not in "ZX"
    return count


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_the_command(tmp_path, number):
    folder = tmp_path / "folder"
    folder.mkdir()
    with open(tmp_path / "errors", "w") as errors:
        process = subprocess.Popen(
            [
                *(sys.executable, str(COMMAND), f"--data_dir={folder}"),
                *("--dataset=digits", "--split=test", "--multi_targets"),
                *("--num_pairs=20000", "--max_shard=1000000"),
                "--num_workers=2",
            ],
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )
    deadline = time.monotonic() + 60
    while not any(folder.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert live_processes(process.pid) >= 2
    process.send_signal(number)
    process.wait()
    deadline = time.monotonic() + 30
    while live_processes(process.pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    left = live_processes(process.pid)
    if left:
        os.killpg(process.pid, signal.SIGKILL)
    assert not left
    if number == signal.SIGTERM:
        assert process.returncode == 1
        message = (tmp_path / "errors").read_text()
        assert "interrupted; the same command makes what is" in message
        assert not list(folder.iterdir())


@pytest.mark.parametrize(
    "changes", [{"seed": 6}, {"num_pairs": 4, "max_shard": 480}]
)
def test_files_of_other_settings_are_refused(tmp_path, changes):
    shifted_records.generate(pairs_job(tmp_path))
    before = contents_of(tmp_path)
    with pytest.raises(UserError, match="written with other settings"):
        shifted_records.generate(pairs_job(tmp_path, **changes))
    assert contents_of(tmp_path) == before


@pytest.mark.parametrize("place", [0, -1])
def test_first_and_last_record_tell_whose_a_file_is(tmp_path, place):
    shifted_records.generate(pairs_job(tmp_path / "other", seed=6))
    path = shifted_records.generate(pairs_job(tmp_path))[1]
    other = tf.data.TFRecordDataset(str(tmp_path / "other" / path.name))
    records = [record.numpy() for record in tf.data.TFRecordDataset(str(path))]
    records[place] = list(other.as_numpy_iterator())[place]
    write_records(path, records)
    with pytest.raises(UserError, match="00001-of-00003 is there already"):
        shifted_records.generate(pairs_job(tmp_path))


def test_damaged_files_are_refused(tmp_path):
    paths = shifted_records.generate(pairs_job(tmp_path))
    paths[1].write_bytes(paths[1].read_bytes()[:-5])
    with pytest.raises(UserError, match=r"-00001-of-00003 is cut off in reco"):
        shifted_records.generate(pairs_job(tmp_path))


def test_wrong_settings(tmp_path):
    with pytest.raises(UserError, match="--max_shard is for --multi_targets"):
        shifted_records.generate(pairs_job(tmp_path, multi_targets=False))
    message = "makes 108,000 files of 1,080,000 records; at most 99,999 can be"
    with pytest.raises(UserError, match=message):
        shifted_records.plan_shards(
            pairs_job(tmp_path, max_shard=10, num_pairs=3000)
        )
    with pytest.raises(UserError, match=r"by --pad=100000,.*choose less"):
        shifted_records.generate(pairs_job(tmp_path, pad=100000))
    with pytest.raises(UserError, match="has no train-images-idx3-ubyte or"):
        shifted_records.generate(Job(str(tmp_path)))
    with pytest.raises(UserError, match="missing is not a folder"):
        shifted_records.generate(Job(str(tmp_path / "missing")))
    assert not (tmp_path / "missing").exists()
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="file cannot be made: File exists"):
        shifted_records.generate(pairs_job(tmp_path / "file"))


@pytest.mark.parametrize("name", ["pad", "shift"])
def test_nothing_is_written_that_the_reader_s_flags_refuse(name):
    written, read = meanings(Job)[name][2], meanings(Options)[name][2]
    assert written.allowed == read.allowed


def test_the_size_is_stated_and_too_much_is_refused(
    tmp_path, monkeypatch, capsys
):
    paths = shifted_records.generate(pairs_job(tmp_path / "enough"))
    size = sum(path.stat().st_size for path in paths)
    expected = f"1080 records to write: {size / 1e9:.3g} GB\n"
    assert capsys.readouterr().out.startswith(expected)
    shifted_records.generate(pairs_job(tmp_path / "enough"))
    assert "0 records to write: 0 GB\n" in capsys.readouterr().out

    def disk_usage(path):
        return types.SimpleNamespace(free=size - 1)

    monkeypatch.setattr(shutil, "disk_usage", disk_usage)
    folder = tmp_path / "full"
    message = f"--data_dir={folder} has .* GB free, but 1080 records take"
    with pytest.raises(UserError, match=message):
        shifted_records.generate(pairs_job(folder))
    assert not list(folder.iterdir())


def test_memory_does_not_grow_with_the_number_of_records(tmp_path):
    contents = DigitPairs(
        digits.read_split(Split.TEST), 1, 1, 10**6, 5, Split.TEST
    )
    path = tmp_path / "some"
    shifted_records.write_records(contents, 0, 2000, path)  # first-time costs
    peaks = []
    for count in (2000, 20000):
        tracemalloc.start()
        shifted_records.write_records(contents, 0, count, path)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]
