import contextlib
import dataclasses
import os
import pathlib
import shutil
import signal
import time
import types

import numpy as np
import pytest
import scipy.ndimage
import tensorflow as tf

from common.errors import UserError
from input_data import keys, shifted_records
from input_data.datasets.digits import read_split
from input_data.images import LabeledImages
from input_data.mnist.mnist_shift import Job
from input_data.registry import Split
from input_data.shifted_records import digit_pairs, shifted_digits
from testing import commands, splits

FOLDER = pathlib.Path(__file__).parent / "mnist"


def pairs_job(folder, **changes):
    pairs = {"multi_targets": True, "num_pairs": 3, "max_shard": 400, "seed": 5}
    job = Job(str(folder), "digits", "test", shift=1, pad=1, **pairs)
    return dataclasses.replace(job, **changes)


def contents_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("split", list(Split))
def test_reader_finds_single_digits(tmp_path, split):
    shift = 1 if split.is_training else 0
    shifted_records.generate(Job(str(tmp_path), "digits", split.value, shift))
    source = read_split(split)
    sizes = {"shift": 1, "eval_size": 10**6}
    pipeline = splits.load("mnist", split, tmp_path, **sizes)
    copies = (2 * shift + 1) ** 2
    assert pipeline.spec.num_examples == len(source) * copies
    x, _ = next(pipeline.evaluation_batches(copies))
    assert (x[keys.RECONS_LABEL] == source.labels[0]).all()
    middle, expected = x[keys.IMAGES][copies // 2], source.images[0] / 255
    np.testing.assert_allclose(middle, expected, atol=1e-6)


def test_reader_finds_shards_of_pairs(tmp_path):
    changes = {"split": "valid_train", "num_pairs": 2}
    job = pairs_job(tmp_path, **changes, max_shard=1000)
    shifted_records.generate(job)
    paths = sorted(tmp_path.iterdir())
    prefix = tmp_path / "multivalid_train_1shifted_mnist.tfrecords"
    names = [f"{prefix}-{shard:05d}-of-00003" for shard in range(3)]
    assert list(map(str, paths)) == names
    # The shards are parts of the same records.
    whole = tmp_path / "whole"
    shifted_records.generate(pairs_job(whole, **changes, max_shard=0))
    joined = b"".join(path.read_bytes() for path in paths)
    assert [joined] == list(contents_of(whole).values())
    sizes = {"num_targets": 2, "eval_size": 10**6}
    spec = splits.load("mnist", Split.VALID_TRAIN, f"{prefix}@3", **sizes).spec
    assert spec.num_examples == 2 * len(read_split(Split.VALID_TRAIN))
    assert spec.shape == keys.ImageShape(30, 30, 1, 10)


def test_an_interrupted_job_continues(tmp_path, monkeypatch):
    shifted_records.generate(pairs_job(tmp_path / "whole"))
    folder = tmp_path / "folder"

    def interrupted(data, job, start, stop):
        for number, record in enumerate(digit_pairs(data, job, start, stop)):
            if start + number > 400:  # in the second of three files
                raise KeyboardInterrupt
            yield record

    with monkeypatch.context() as patch:
        patch.setattr(shifted_records, "digit_pairs", interrupted)
        with pytest.raises(KeyboardInterrupt):
            shifted_records.generate(pairs_job(folder))
    (kept,) = folder.iterdir()
    before = kept.stat().st_mtime_ns
    shifted_records.generate(pairs_job(folder))
    assert contents_of(folder) == contents_of(tmp_path / "whole")
    assert kept.stat().st_mtime_ns == before


@pytest.mark.parametrize(
    "changes", [{"seed": 6}, {"pad": 2}, {"max_shard": 0, "num_pairs": 4}]
)
def test_files_of_other_settings_are_refused(tmp_path, changes):
    shards = changes.get("max_shard", 400)
    shifted_records.generate(pairs_job(tmp_path, max_shard=shards))
    before = contents_of(tmp_path)
    with pytest.raises(UserError):
        shifted_records.generate(pairs_job(tmp_path, **changes))
    assert contents_of(tmp_path) == before


@pytest.mark.slow
def test_processes_write_the_same_files_and_keep_them(tmp_path):
    alone, together = tmp_path / "alone", tmp_path / "together"
    shifted_records.generate(pairs_job(alone, max_shard=200))
    command = [
        *(FOLDER / "mnist_shift.py", f"--data_dir={together}"),
        *("--num_workers=2", "--dataset=digits"),
        *("--split=test", "--shift=1", "--pad=1", "--multi_targets=true"),
        *("--num_pairs=3", "--max_shard=200", "--seed=5"),
    ]
    together.mkdir()
    kept = together / sorted(alone.iterdir())[1].name
    shutil.copy(alone / kept.name, kept)
    before = kept.stat().st_mtime_ns
    commands.output_of(*command, cwd=tmp_path)
    assert contents_of(together) == contents_of(alone)
    assert kept.stat().st_mtime_ns == before


def test_files_larger_than_the_disk_are_refused(tmp_path, monkeypatch, capsys):
    job = Job(str(tmp_path), "digits", "test", shift=1)
    # 360 images, 9 offsets, 28 * 28 bytes and some more.
    usage = types.SimpleNamespace(free=2.6e6)
    monkeypatch.setattr(shifted_records.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(UserError, match="0.0 GB free"):
        shifted_records.generate(job)
    assert "3,240 records" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL]
)
def test_workers_end_with_the_command(tmp_path, number):
    flags = ["--dataset=digits", "--split=test", "--multi_targets"]
    flags += ["--num_pairs=20000", "--max_shard=1000000", "--num_workers=2"]
    process = commands.start(
        *(FOLDER / "mnist_shift.py", f"--data_dir={tmp_path}", *flags),
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 400
        while not any(tmp_path.iterdir()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(number)
        # The output ends with the last process that has it open.
        process.communicate(timeout=400)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    is_killed = number == signal.SIGKILL
    assert process.returncode == (-number if is_killed else 128 + number)


JOB = Job(split="test", shift=2, pad=1, num_pairs=40, seed=5)


def some_images(count=23, size=7):
    """Noise in the middle 3x3 pixels: a shift of 2 loses nothing."""
    generator = np.random.default_rng(0)
    images = np.zeros((count, size, size, 1), np.uint8)
    images[:, 2:-2, 2:-2] = generator.integers(1, 256, (count, 3, 3, 1))
    return LabeledImages(images, generator.integers(0, 4, count), 10)


def parse(records):
    """Dicts of the values of records."""
    for record in records:
        features = tf.train.Example.FromString(record).features.feature
        yield {
            key: (feature.int64_list.value or feature.bytes_list.value)[0]
            for key, feature in features.items()
        }


def test_single_digits_at_all_offsets_in_the_reference_order():
    data = some_images(3)
    examples = parse(shifted_digits(data, JOB, 0, 75))
    sizes = {"height": 9, "width": 9, "depth": 1}
    for n, row, column in np.ndindex(3, 5, 5):
        image, offset = np.pad(data.images[n, ..., 0], 1), (row - 2, column - 2)
        raw = scipy.ndimage.shift(image, offset, order=0).tobytes()
        expected = {**sizes, "label": data.labels[n], "image_raw": raw}
        assert next(examples) == expected


def test_pairs_are_exact_in_number_and_different_in_class():
    data = some_images(23)
    digits = [image.tobytes() for image in data.images[:, 2:-2, 2:-2]]
    used, offsets = np.zeros((2, 23), int), np.zeros((2, 5, 5), int)
    for values in parse(digit_pairs(data, JOB, 0, 23 * 40)):
        images = []
        for target in (0, 1):
            raw = values[f"image_raw_{target + 1}"]
            image = np.frombuffer(raw, np.uint8).reshape(9, 9)
            images.append(image)
            row, column = np.argwhere(image).min(axis=0)
            digit = image[row : row + 3, column : column + 3]
            assert digit.sum() == image.sum()
            number = digits.index(digit.tobytes())
            used[target, number] += 1
            offsets[target, row - 1, column - 1] += 1
            assert values[f"label_{target + 1}"] == data.labels[number]
        assert values["label_1"] != values["label_2"]
        merged = np.minimum(images[0].astype(int) + images[1], 255)
        assert values["merged_raw"] == merged.astype(np.uint8).tobytes()
    assert (used[0] == 40).all()
    # Each image of another class is as likely.
    differ = data.labels[:, None] != data.labels
    expected = 40 * (differ / differ.sum(axis=1)[:, None]).sum(axis=0)
    assert (np.abs(used[1] - expected) < 5 * np.sqrt(expected)).all()
    mean = 23 * 40 / 25
    assert np.abs(offsets - mean).max() < 5 * np.sqrt(mean)
