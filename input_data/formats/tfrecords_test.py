import gzip
import os
import resource

import google_crc32c
import numpy as np
import pytest

from input_data.formats.tfrecords import TFRecordFiles
from old.errors import UserError
from testing.tiny_files import write_records

LENGTH = 600
FRAME = LENGTH + 16


def some_records(count, length=LENGTH, seed=0):
    generator = np.random.default_rng(seed)
    return [generator.bytes(length) for _ in range(count)]


def open_and_read(*paths):
    files = TFRecordFiles(paths)
    return files.read(np.arange(len(files)))


def test_reads_any_records_of_several_files(tmp_path):
    records = some_records(12)
    paths = [
        write_records(tmp_path / "a", records[:5]),
        write_records(tmp_path / "b", records[5:6]),
        write_records(tmp_path / "c", records[6:]),
    ]
    files = TFRecordFiles(paths)
    assert len(files) == 12
    indices = np.array([11, 0, 5, 5, 4, 6])
    assert files.read(indices) == [records[index] for index in indices]
    assert [files.locate(index) for index in (0, 4, 5, 6, 11)] == [
        (paths[0], 0),
        (paths[0], 4),
        (paths[1], 0),
        (paths[2], 0),
        (paths[2], 5),
    ]


def test_more_files_than_a_program_begins_with(tmp_path):
    paths = [
        write_records(tmp_path / str(number), some_records(1))
        for number in range(20)
    ]
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    is_open = len(os.listdir("/dev/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (is_open + 9, before[1]))
    try:
        assert len(open_and_read(*paths)) == 20
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: b"", "is empty: it has no records"),
        (lambda content: content[:7], "is cut off in record 0"),
        (lambda content: content[:-1], "is cut off in record 3"),
        (lambda content: content[: FRAME + 20], "is cut off in record 1"),
        (lambda content: content[: FRAME + 3], "is cut off in record 1"),
        (lambda content: b"hello" * 100, "not a TFRecord file"),
        (lambda content: gzip.compress(content), "is gzipped"),
        (
            lambda content: flip(content, 2 * FRAME + 100),
            "is damaged: the data of record 2 do not match",
        ),
        (
            lambda content: flip(content, 3 * FRAME - 1),
            "is damaged: the data of record 2 do not match",
        ),
        (
            lambda content: flip(content, FRAME + 1),
            "is damaged: the length of record 1 does not match",
        ),
        (
            lambda content: flip(content, 9),
            "is damaged or not a TFRecord file",
        ),
        (
            lambda content: flip(content, FRAME + 9) + b"more",
            "is damaged: the length of record 1 does not match",
        ),
    ],
)
def test_damaged_files(tmp_path, damage, message):
    path = write_records(tmp_path / "some.tfrecords", some_records(4))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UserError, match=message) as error:
        open_and_read(path)
    assert str(path) in str(error.value)


def flip(content, place):
    changed = bytearray(content)
    changed[place] ^= 0x10
    return bytes(changed)


@pytest.mark.parametrize("other", [LENGTH + 1, 2 * LENGTH + 16])
def test_records_of_another_length(tmp_path, other):
    # The second is as long as two records and their frames.
    records = [*some_records(2), *some_records(1, other)]
    path = write_records(tmp_path / "some.tfrecords", records)
    message = f"some.tfrecords: record 2 is of {other} bytes but those before"
    with pytest.raises(UserError, match=message):
        open_and_read(path)


def test_files_of_different_lengths(tmp_path):
    first = write_records(tmp_path / "first", some_records(2))
    second = write_records(tmp_path / "second", some_records(2, LENGTH + 8))
    with pytest.raises(UserError, match=r"second: its records are of 608 .*"):
        TFRecordFiles([first, second])


def test_a_length_beyond_all_images(tmp_path):
    length = (10**12).to_bytes(8, "little")
    crc = google_crc32c.value(length)
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    path = tmp_path / "sparse"
    with open(path, "wb") as file:
        file.write(length + masked.to_bytes(4, "little"))
        file.truncate(10**12 + 16)
    with pytest.raises(UserError, match=r"record 0 is of 1000000000000 bytes"):
        TFRecordFiles([path])


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(UserError, match=r"none cannot be read: No such file"):
        TFRecordFiles([tmp_path / "none"])
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        TFRecordFiles([tmp_path])


def test_file_that_is_cut_off_while_open(tmp_path):
    path = write_records(tmp_path / "some", some_records(3))
    files = TFRecordFiles([path])
    with open(path, "r+b") as file:
        file.truncate(2 * FRAME + 30)
    assert files.read([1]) == [some_records(3)[1]]
    with pytest.raises(UserError, match="some is cut off in record 2"):
        files.read([0, 2])
