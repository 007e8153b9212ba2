import gzip
import os
import struct
import tracemalloc

import numpy as np
import pytest

from input_data.formats.idx import read_idx
from old.errors import UserError

IMAGES = np.random.default_rng(1).integers(0, 256, (5, 4, 3)).astype(np.uint8)


def idx_bytes(array):
    header = struct.pack(
        f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape
    )
    return header + array.tobytes()


@pytest.mark.parametrize("name", ["images", "images.gz"])
def test_reads_what_was_written(tmp_path, name):
    content = idx_bytes(IMAGES)
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if "gz" in name else content)
    np.testing.assert_array_equal(read_idx(path, 3), IMAGES)


WHOLE = idx_bytes(IMAGES)
NO_IMAGES_OF_ANY_SIZE = WHOLE[:4] + struct.pack(">3I", 0, 2**32 - 1, 2**32 - 1)
ZIPPED = gzip.compress(WHOLE)
FLIPPED = bytearray(ZIPPED)
FLIPPED[len(ZIPPED) // 2] ^= 4


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a", b"", "begins with nothing"),
        ("a", WHOLE[:3], "is not an idx file"),
        ("a", WHOLE[:9], "cut off in its header"),
        ("a", NO_IMAGES_OF_ANY_SIZE, "has no images: its header announces"),
        ("a", WHOLE[:-1], "cut off: .* 76 bytes in all, but there are 75"),
        ("a", WHOLE + b"x", "too long"),
        ("a", b"\x00\x00\x0d\x03" + WHOLE[4:], "begins with 00 00 0d 03"),
        ("a", idx_bytes(IMAGES[0, 0]), "with 3 axes.*expected 00 00 08 03"),
        ("a", b"<html>not found</html>", "begins with 3c 68 74 6d"),
        ("a.gz", ZIPPED[:-5], "gzip data ends early"),
        ("a.gz", ZIPPED[:20], "gzip data ends early"),
        ("a.gz", b"", "begins with nothing"),
        ("a.gz", WHOLE, "not a sound gzip file"),
        ("a.gz", bytes(FLIPPED), "not a sound gzip file"),
    ],
)
def test_damage_is_named(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError, match=message) as caught:
        read_idx(path, 3)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", ["a", "a.gz"])
def test_no_more_is_read_than_the_header_announces(tmp_path, name):
    path = tmp_path / name
    with (gzip.open if name == "a.gz" else open)(path, "wb") as file:
        file.write(WHOLE + bytes(10**8))
    tracemalloc.start()
    with pytest.raises(UserError, match="too long"):
        read_idx(path, 3)
    assert tracemalloc.get_traced_memory()[1] < 10**7
    tracemalloc.stop()
    path = tmp_path / "huge"
    path.write_bytes(WHOLE[:4] + b"\xff" * 12)
    with pytest.raises(UserError, match="huge: its header announces .* GB"):
        read_idx(path, 3)


@pytest.mark.usefixtures("in_time")
def test_what_is_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(UserError, match=f"{path} is a pipe, a socket or"):
            read_idx(path, 3)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match="none cannot be read: No such file"):
        read_idx(tmp_path / "none", 3)
