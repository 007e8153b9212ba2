import contextlib
import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from common.errors import UserError
from config import Config
from input_data import features as keys
from input_data import registry
from input_data.datasets import digits
from input_data.generators import shifted_records
from input_data.generators.expansion import DigitPairs
from input_data.generators.job import Job
from input_data.registry import Split

COMMAND = pathlib.Path(__file__).parents[1] / "mnist" / "mnist_shift.py"


def pairs_job(folder, **changes):
    job = Job(
        str(folder),
        dataset="digits",
        split="test",
        shift=1,
        pad=1,
        multi_targets=True,
        num_pairs=3,
        max_shard=400,
        seed=5,
    )
    return dataclasses.replace(job, **changes)


def contents_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("split", list(Split))
def test_reader_finds_single_digits(tmp_path, split):
    shift = 1 if split.is_training else 0
    job = Job(str(tmp_path), dataset="digits", split=split.value, shift=shift)
    shifted_records.generate(job)
    source = digits.read_split(split)
    config = Config(data_dir=str(tmp_path), shift=1, eval_size=10**6)
    pipeline = registry.load("mnist", split, config)
    copies = (2 * shift + 1) ** 2
    assert pipeline.spec.num_examples == len(source) * copies
    x, _ = next(pipeline.evaluation_batches(copies))
    assert (x[keys.RECONS_LABEL] == source.labels[0]).all()
    np.testing.assert_allclose(
        x[keys.IMAGES][copies // 2], source.images[0] / 255.0, atol=1e-6
    )


def test_reader_finds_shards_of_pairs(tmp_path):
    job = pairs_job(tmp_path, split="valid_train", num_pairs=2, max_shard=1000)
    paths = shifted_records.generate(job)
    prefix = tmp_path / "multivalid_train_1shifted_mnist.tfrecords"
    assert list(map(str, paths)) == [
        f"{prefix}-{shard:05d}-of-00003" for shard in range(3)
    ]
    # The shards are parts of the same records.
    (whole,) = shifted_records.generate(dataclasses.replace(job, max_shard=0))
    joined = b"".join(path.read_bytes() for path in paths)
    assert joined == whole.read_bytes()
    config = Config(data_dir=f"{prefix}@3", num_targets=2, eval_size=10**6)
    spec = registry.load("mnist", Split.VALID_TRAIN, config).spec
    assert spec.num_examples == 2 * len(digits.read_split(Split.VALID_TRAIN))
    assert spec.shape == keys.ImageShape(30, 30, 1, 10)


def test_an_interrupted_job_continues(tmp_path, monkeypatch):
    shifted_records.generate(pairs_job(tmp_path / "whole"))
    folder = tmp_path / "folder"
    records = DigitPairs.records

    def interrupted(contents, start, stop):
        for number, record in enumerate(records(contents, start, stop)):
            if start + number > 400:  # in the second of three files
                raise KeyboardInterrupt
            yield record

    with monkeypatch.context() as patch:
        patch.setattr(DigitPairs, "records", interrupted)
        with pytest.raises(KeyboardInterrupt):
            shifted_records.generate(pairs_job(folder))
    (kept,) = folder.iterdir()
    before = kept.stat()
    shifted_records.generate(pairs_job(folder))
    assert contents_of(folder) == contents_of(tmp_path / "whole")
    assert kept.stat() == before


@pytest.mark.parametrize(
    "changes",
    [{"seed": 6}, {"pad": 2}, {"max_shard": 0, "num_pairs": 4}],
)
def test_files_of_other_settings_are_refused(tmp_path, changes):
    shards = changes.get("max_shard", 400)
    shifted_records.generate(pairs_job(tmp_path, max_shard=shards))
    before = contents_of(tmp_path)
    with pytest.raises(UserError):
        shifted_records.generate(pairs_job(tmp_path, **changes))
    assert contents_of(tmp_path) == before


@pytest.mark.slow
def test_command_with_workers(tmp_path):
    alone, together = tmp_path / "alone", tmp_path / "together"
    shifted_records.generate(pairs_job(alone))
    command = [
        *(sys.executable, str(COMMAND), f"--data_dir={together}"),
        *("--dataset=digits", "--split=test", "--shift=1", "--pad=1"),
        *("--multi_targets=true", "--num_pairs=3", "--max_shard=400"),
        *("--seed=5", "--num_workers=2"),
    ]
    subprocess.run(command, cwd=tmp_path, check=True)
    assert contents_of(together) == contents_of(alone)


@pytest.mark.slow
@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL]
)
def test_workers_end_with_the_command(tmp_path, number):
    flags = ["--dataset=digits", "--split=test", "--multi_targets"]
    flags += ["--num_pairs=20000", "--max_shard=1000000", "--num_workers=2"]
    process = subprocess.Popen(
        [sys.executable, str(COMMAND), f"--data_dir={tmp_path}", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 60
        while not any(tmp_path.iterdir()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(number)
        # The output ends with the last process that has it open.
        process.communicate(timeout=30)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    expected = -number if number == signal.SIGKILL else 128 + number
    assert process.returncode == expected
