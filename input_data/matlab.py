"""Reads and writes MATLAB version 5 .mat files: SVHN's and affNIST's.

The format is "MAT-File Level 5" of the MathWorks' document "MAT-File Format".
Only what these data sets hold is understood: arrays of numbers, and structs
of them. SciPy's reader would be 100 MB more to install, and meets damaged
files with a dozen kinds of exceptions, of which some are not about the file.
"""

import math
import pathlib
import struct
import zlib

import numpy as np

from common import durable
from common.errors import UserError
from input_data.files import read_bytes

_HEADER_SIZE = 128
_HEADER_TEXT = b"MATLAB 5.0 MAT-file"
_HDF5_MAGIC = b"\x89HDF"
# Data types of elements (table 1-1), by their numbers.
_NUMBER_TYPES = {
    1: "<i1",
    2: "<u1",
    3: "<i2",
    4: "<u2",
    5: "<i4",
    6: "<u4",
    7: "<f4",
    9: "<f8",
    12: "<i8",
    13: "<u8",
}
_INT8, _UINT8, _INT32, _UINT32 = 1, 2, 5, 6
_MATRIX = 14
_COMPRESSED = 15
# Classes of arrays (table 1-3), by their numbers.
_STRUCT = 2
_NUMBER_CLASSES = {
    6: "f8",
    7: "f4",
    8: "i1",
    9: "u1",
    10: "i2",
    11: "u2",
    12: "i4",
    13: "u4",
    14: "i8",
    15: "u8",
}
_UINT8_CLASS = 9


class _DamagedError(Exception):
    """Says what is wrong with the content of a file."""


def read_mat(path):
    """Reads the variables of a MATLAB 5 file.

    Args:
      path: path of the file.

    Returns:
      dict from name to array, or to a dict of arrays for a 1x1 struct.
      Variables and fields of other kinds (text, cells and so on) are left
      out.

    Raises:
      UserError: naming the file, if it cannot be read, is not of this
        version, is cut off or damaged.
    """
    path = pathlib.Path(path)
    content = memoryview(read_bytes(path))
    if content[:4] == _HDF5_MAGIC or content[:10] == b"MATLAB 7.3":
        raise UserError(
            f"{path} is a MATLAB 7.3 file; save it as version 5 "
            "(in MATLAB: save(..., '-v7'))"
        )
    # 0x0100 is version 5; "IM" is "MI" as little-endian machines write it.
    if content[124:128] != b"\x00\x01IM":
        raise UserError(
            f"{path} is not a little-endian MATLAB 5 file: it begins with "
            f"{bytes(content[:19])!r}, {len(content)} bytes in all"
        )
    variables = {}
    try:
        for kind, data in _elements(content[_HEADER_SIZE:]):
            if kind == _COMPRESSED:
                ((kind, data),) = _elements(_unpack(data))
            if kind != _MATRIX:
                raise _DamagedError(f"has an element of type {kind} by itself")
            name, value = _parse_matrix(data)
            if value is not None:
                variables[name] = value
    except _DamagedError as error:
        raise UserError(f"{path} {error}") from None
    except ValueError as error:  # of unpacking elements and decoding names
        raise UserError(f"{path} is damaged: {error}") from None
    return variables


def _unpack(data):
    unpacker = zlib.decompressobj()
    try:
        content = unpacker.decompress(data)
    except zlib.error as error:
        raise _DamagedError(f"is damaged: {error}") from None
    if not unpacker.eof:
        raise _DamagedError("is cut off: its compressed data ends early")
    return memoryview(content)


def _elements(view):
    """Yields (type, data) of the elements that follow each other in `view`."""
    position = 0
    while position < len(view):
        tag = view[position : position + 8]
        if len(tag) < 8:
            raise _DamagedError("is cut off inside the tag of an element")
        kind, size = struct.unpack("<II", tag)
        if kind >> 16:  # a small element: its data is in the tag
            kind, size = kind & 0xFFFF, kind >> 16
            if size > 4:
                raise _DamagedError("has a small element of more than 4 bytes")
            yield kind, tag[4 : 4 + size]
            position += 8
            continue
        data = view[position + 8 : position + 8 + size]
        if len(data) < size:
            raise _DamagedError(
                f"is cut off: an element announces {size} bytes, and only "
                f"{len(data)} follow"
            )
        yield kind, data
        # Elements begin at multiples of 8 bytes, except after compressed ones.
        padding = 0 if kind == _COMPRESSED else -size % 8
        position += 8 + size + padding


def _parse_matrix(data):
    """(name, value) of an array; the value of unknown kinds is None."""
    if not data:
        return "", np.zeros((0, 0))
    elements = _elements(data)
    flags, shape, name = (_next_numbers(elements) for _ in range(3))
    if len(flags) != 2 or len(shape) < 2 or (shape < 0).any():
        raise _DamagedError("is damaged: an array without class or shape")
    name = name.tobytes().decode("ascii")
    shape = tuple(shape.tolist())
    array_class = int(flags[0]) & 0xFF
    if array_class in _NUMBER_CLASSES:
        values = _next_numbers(elements)
        if len(values) != math.prod(shape):
            raise _DamagedError(
                f"is damaged: {name or 'an array'} has the shape {shape} but "
                f"{len(values)} values"
            )
        values = values.astype(_NUMBER_CLASSES[array_class], copy=False)
        return name, values.reshape(shape, order="F")
    if array_class == _STRUCT and math.prod(shape) == 1:
        (name_size,) = _next_numbers(elements)
        names = _next_numbers(elements).tobytes()
        fields = {}
        for start in range(0, len(names), int(name_size)):
            field = names[start : start + int(name_size)].split(b"\0")[0]
            _, value = _parse_matrix(_next(elements)[1])
            if value is not None:
                fields[field.decode("ascii")] = value
        return name, fields
    return name, None


def _next(elements):
    element = next(elements, None)
    if element is None:
        raise _DamagedError("is cut off inside an array")
    return element


def _next_numbers(elements):
    kind, data = _next(elements)
    if kind not in _NUMBER_TYPES:
        raise _DamagedError(
            f"is damaged: an element of type {kind} where numbers must be"
        )
    return np.frombuffer(data, _NUMBER_TYPES[kind])


def write_mat(path, name, fields):
    """Writes a MATLAB 5 file with one struct of uint8 matrices.

    Args:
      path: `pathlib.Path` of the file.
      name: string, the struct's name.
      fields: dict from name (at most 31 letters) to uint8 array [m, n].

    Raises:
      UserError: if the file is there already or cannot be written; then
        nothing of it is left.
    """
    # A field's name takes 32 bytes, its end mark included.
    names = b"".join(field.encode().ljust(32, b"\0") for field in fields)
    parts = [
        *_matrix_start(_STRUCT, (1, 1), name),
        *_element(_INT32, struct.pack("<i", 32)),
        *_element(_INT8, names),
    ]
    for values in fields.values():
        field_parts = [
            *_matrix_start(_UINT8_CLASS, values.shape, ""),
            *_element(_UINT8, np.ascontiguousarray(values.T).reshape(-1)),
        ]
        parts += [_tag(_MATRIX, field_parts), *field_parts]
    with durable.whole_file(path) as partial, open(partial, "wb") as file:
        file.write(_HEADER_TEXT.ljust(124) + b"\x00\x01IM")
        file.writelines([_tag(_MATRIX, parts), *parts])


def _matrix_start(array_class, shape, name):
    return [
        *_element(_UINT32, struct.pack("<II", array_class, 0)),
        *_element(_INT32, np.asarray(shape, "<i4").tobytes()),
        *_element(_INT8, name.encode()),
    ]


def _element(kind, data):
    return [struct.pack("<II", kind, len(data)), data, bytes(-len(data) % 8)]


def _tag(kind, parts):
    return struct.pack("<II", kind, sum(map(len, parts)))
