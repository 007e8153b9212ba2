import base64
import struct
import tracemalloc
import zlib

import numpy as np
import pytest

from input_data import memory
from input_data.formats.matlab import read_mat, write_mat
from old.errors import UserError

HEADER = b"MATLAB 5.0".ljust(124) + b"\x00\x01IM"
# Both written by scipy.io.savemat: X = arange(24) as uint8 [2, 2, 3, 2] and
# y = [[10.], [3.]], each compressed.
COMPRESSED = base64.b64decode(
    "TUFUTEFCIDUuMCBNQVQtZmlsZSBQbGF0Zm9ybTogcG9zaXgsIENyZWF0ZWQgb246IFNhdC"
    "BOb3YgMjEgMDM6NDU6MDkgMjAyNgAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    "AAAAAAAAAAAAAAAAAAAAAAAAAAABSU0PAAAAQAAAAHic42NgYAgAYjYg5gBiTgYIYAViAS"
    "BmgmJmKM0IhBFQtgRIIQ+bEBMfhwiLAJcYIy+7MDM/pyirILc4AEigAhwPAAAALQAAAHic"
    "42NgYHAAYjYg5oDSIMAK5TMBMSMYMzJUAmlOIBZggAEVBwjN4QAAMDYBsw=="
)
# s = struct(image=uint8 arange(6) [3, 2], label_int=int32 [[7, 300]],
# text="abc") and ab = [[1.5, 2.]].
STRUCT = base64.b64decode(
    "TUFUTEFCIDUuMCBNQVQtZmlsZSBQbGF0Zm9ybTogcG9zaXgsIENyZWF0ZWQgb246IFNhdC"
    "BOb3YgMjEgMDM6NDU6MDkgMjAyNgAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    "AAAAAAAAAAAAAAAAAAAAAAAAAAABSU0OAAAAEAEAAAYAAAAIAAAAAgAAAAAAAAAFAAAACA"
    "AAAAEAAAABAAAAAQABAHMAAAAFAAQACgAAAAEAAAAeAAAAaW1hZ2UAAAAAAGxhYmVsX2lu"
    "dAB0ZXh0AAAAAAAAAAAOAAAAOAAAAAYAAAAIAAAACQAAAAAAAAAFAAAACAAAAAMAAAACAA"
    "AAAQAAAAAAAAACAAAABgAAAAACBAEDBQAADgAAADgAAAAGAAAACAAAAAwAAAAAAAAABQAA"
    "AAgAAAABAAAAAgAAAAEAAAAAAAAABQAAAAgAAAAHAAAALAEAAA4AAAAwAAAABgAAAAgAAA"
    "AEAAAAAAAAAAUAAAAIAAAAAQAAAAMAAAABAAAAAAAAABAAAwBhYmMADgAAAEAAAAAGAAAA"
    "CAAAAAYAAAAAAAAABQAAAAgAAAABAAAAAgAAAAEAAgBhYgAACQAAABAAAAAAAAAAAAD4Pw"
    "AAAAAAAABA"
)


def write(tmp_path, content):
    path = tmp_path / "x.mat"
    path.write_bytes(content)
    return path


def test_reads_compressed_arrays_as_scipy_wrote_them(tmp_path):
    variables = read_mat(write(tmp_path, COMPRESSED))
    assert set(variables) == {"X", "y"}
    expected = np.arange(24, dtype=np.uint8).reshape(2, 2, 3, 2)
    np.testing.assert_array_equal(variables["X"], expected)
    assert variables["X"].dtype == np.uint8
    np.testing.assert_array_equal(variables["y"], [[10.0], [3.0]])
    assert variables["y"].dtype == np.float64


def test_reads_structs_as_scipy_wrote_them_and_leaves_out_text(tmp_path):
    variables = read_mat(write(tmp_path, STRUCT))
    assert set(variables) == {"s", "ab"}
    assert set(variables["s"]) == {"image", "label_int"}
    expected = np.arange(6).reshape(3, 2)
    np.testing.assert_array_equal(variables["s"]["image"], expected)
    np.testing.assert_array_equal(variables["s"]["label_int"], [[7, 300]])
    np.testing.assert_array_equal(variables["ab"], [[1.5, 2.0]])


def test_what_is_written_is_read_again(tmp_path):
    path = tmp_path / "x.mat"
    fields = {
        "odd": np.arange(15, dtype=np.uint8).reshape(3, 5),
        "even": np.full((8, 2), 255, np.uint8),
    }
    write_mat(path, "name", fields)
    assert [p.name for p in tmp_path.iterdir()] == ["x.mat"]
    (found,) = read_mat(path).values()
    assert list(found) == list(fields)
    for name, values in fields.items():
        np.testing.assert_array_equal(found[name], values)


def read_or_none(path):
    """The variables, or None after a UserError that names the file."""
    try:
        return read_mat(path)
    except UserError as error:
        return None if str(path) in str(error) else str(error)


@pytest.mark.parametrize("content", [COMPRESSED, STRUCT])
def test_every_cut_is_an_error_or_leaves_whole_variables(tmp_path, content):
    whole = read_mat(write(tmp_path, content))
    for size in range(len(content)):
        variables = read_or_none(write(tmp_path, content[:size]))
        assert variables is None or set(variables) < set(whole)


@pytest.mark.parametrize("content", [COMPRESSED, STRUCT])
def test_no_changed_byte_gives_anything_but_a_user_error(tmp_path, content):
    for place in range(len(HEADER), len(content)):
        changed = bytearray(content)
        changed[place] ^= 0x45
        variables = read_or_none(write(tmp_path, changed))
        assert variables is None or isinstance(variables, dict)


def test_changed_compressed_data_is_an_error(tmp_path):
    for place in range(len(HEADER) + 8, len(HEADER) + 8 + 0x40):
        changed = bytearray(COMPRESSED)
        changed[place] ^= 1
        with pytest.raises(UserError, match=r"damaged|cut off|type"):
            read_mat(write(tmp_path, changed))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "0 bytes"),
        (b"PNG or so" * 30, "not a little-endian MATLAB 5 file"),
        (b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM", "7.3"),
        (b"\x89HDF\r\n\x1a\n" + bytes(500), "7.3"),
        (HEADER[:-2] + b"MI", "little-endian"),
        (HEADER + struct.pack("<II", 14, 99), "cut off"),
        (HEADER + b"\x0e\0\0", "cut off"),
        (HEADER + struct.pack("<II", 9, 8) + bytes(8), "type 9"),
        (HEADER + struct.pack("<II", 15, 3) + b"abc", "damaged"),
        (
            HEADER
            + struct.pack("<II", 15, len(zlib.compress(b"")))
            + zlib.compress(b""),
            "damaged",
        ),
    ],
)
def test_other_files_are_named(tmp_path, content, message):
    path = write(tmp_path, content)
    with pytest.raises(UserError, match=f"{path}.*{message}"):
        read_mat(path)


def element(kind, data):
    return struct.pack("<II", kind, len(data)) + data + bytes(-len(data) % 8)


def matrix(*content, array_class=9, flags=None, shape=None):
    flags = flags or element(6, struct.pack("<II", array_class, 0))
    shape = shape or element(5, struct.pack("<2i", 1, 1))
    return element(14, flags + shape + element(1, b"s") + b"".join(content))


BYTE = element(2, b"\x07")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (matrix(BYTE, shape=element(9, struct.pack("<2d", 1, 1))), "type 9"),
        (matrix(BYTE, flags=element(9, struct.pack("<2d", 9, 0))), "type 9"),
        (matrix(BYTE, shape=element(5, struct.pack("<2i", 1, -1))), "shape"),
        (matrix(BYTE, shape=element(5, struct.pack("<2i", 1, 2))), "1 values"),
        (matrix(array_class=2), "it ends inside an array"),
        # A struct whose names take no bytes.
        (matrix(element(5, bytes(4)), BYTE, array_class=2), "must not be zero"),
    ],
)
def test_numbers_that_are_not_what_they_must_be(tmp_path, content, message):
    with pytest.raises(UserError, match=f"cut off or damaged: .*{message}"):
        read_mat(write(tmp_path, HEADER + content))


def test_numbers_are_of_the_type_that_they_are_stored_in(tmp_path):
    half = element(9, struct.pack("<d", 0.5))
    for content, expected in (
        (matrix(BYTE, array_class=6), np.uint8([[7]])),
        (matrix(half), np.float64([[0.5]])),
    ):
        found = read_mat(write(tmp_path, HEADER + content))["s"]
        np.testing.assert_array_equal(found, expected, strict=True)


def test_structs_in_structs_are_left_out_however_deep(tmp_path):
    content = matrix(BYTE)
    for _ in range(2000):
        name = element(5, struct.pack("<i", 8)) + element(1, bytes(8))
        content = matrix(name, content, array_class=2)
    assert read_mat(write(tmp_path, HEADER + content)) == {"s": {}}


def test_no_more_is_unpacked_than_announced(tmp_path):
    zeros = zlib.compressobj()
    packed = zeros.compress(struct.pack("<II", 14, 8))
    packed += b"".join(zeros.compress(bytes(10**7)) for _ in range(20))
    packed += zeros.flush()
    content = HEADER + struct.pack("<II", 15, len(packed)) + packed
    path = write(tmp_path, content)
    tracemalloc.start()
    with pytest.raises(UserError, match="longer than announced"):
        read_mat(path)
    assert tracemalloc.get_traced_memory()[1] < 10**7
    tracemalloc.stop()


def test_no_more_is_unpacked_than_fits_in_memory(tmp_path, monkeypatch):
    tag = zlib.compress(struct.pack("<II", 14, 2**32 - 1))
    monkeypatch.setattr(memory, "available", lambda: 2**32 - 2)
    with pytest.raises(UserError, match="is it damaged"):
        read_mat(write(tmp_path, HEADER + element(15, tag)))


def test_elements_that_fit_one_by_one_must_fit_together(tmp_path, monkeypatch):
    write_mat(path := tmp_path / "x.mat", "s", {"x": np.zeros((99, 99), "u1")})
    packed = zlib.compress(path.read_bytes()[len(HEADER) :])
    one = struct.pack("<II", 15, len(packed)) + packed
    enough = (2 * memory.COPIES + 1) * 99 * 99  # for two, not for three
    monkeypatch.setattr(memory, "available", lambda: enough)
    assert read_mat(write(tmp_path, HEADER + 2 * one))["s"]["x"].size == 99 * 99
    with pytest.raises(UserError, match=r"x\.mat, unpacked, takes"):
        read_mat(write(tmp_path, HEADER + 3 * one))


def test_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"none\.mat cannot be read"):
        read_mat(tmp_path / "none.mat")
