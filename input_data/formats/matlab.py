"""Reads and writes MATLAB version 5 .mat files: SVHN's and affNIST's.

The format is "MAT-File Level 5" of the MathWorks' document "MAT-File Format".
Only what these data sets hold is understood: arrays of numbers, and structs
of them. SciPy's reader is no replacement: of the 1,908 files that differ from
this test's in one byte, 37 end the process (SciPy 1.17, segmentation faults),
as do 5,000 structs in each other, and the others raise seven kinds of errors.
"""

import math
import pathlib
import struct
import zlib

import numpy as np

from input_data.formats.files import read_bytes
from input_data.memory import COPIES, require_memory
from old import durable
from old.errors import UserError

_HEADER_SIZE = 128
_HEADER_TEXT = b"MATLAB 5.0 MAT-file"
_HDF5_MAGIC = b"\x89HDF"
# Data types of elements (table 1-1), by their numbers.
_INT8, _UINT8, _INT32, _UINT32, _MATRIX, _COMPRESSED = 1, 2, 5, 6, 14, 15
_NUMBER_TYPES = {
    _INT8: "<i1",
    _UINT8: "<u1",
    3: "<i2",
    4: "<u2",
    _INT32: "<i4",
    _UINT32: "<u4",
    7: "<f4",
    9: "<f8",
    12: "<i8",
    13: "<u8",
}
# Classes of arrays (table 1-3): struct, uint8, and all of numbers.
_STRUCT, _UINT8_CLASS, _NUMBER_CLASSES = 2, 9, range(6, 16)


def read_mat(path):
    """Reads the variables of a MATLAB 5 file.

    Args:
      path: path of the file.

    Returns:
      dict from name to array, or to a dict of arrays for a 1x1 struct.
      Arrays are of the type that their numbers are stored in; MATLAB stores
      doubles without fractions in fewer bytes. Variables and fields of other
      kinds (text, cells, structs in structs and so on) are left out.

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
    variables, unpacked = {}, 0
    try:
        for kind, data in _elements(content[_HEADER_SIZE:]):
            if kind == _COMPRESSED:
                element = _unpack(data, path, unpacked)
                unpacked += len(element)
                ((kind, data),) = _elements(element)
            if kind != _MATRIX:
                raise ValueError(f"an element of type {kind} by itself")
            name, value = _parse_matrix(data)
            if value is not None:
                variables[name] = value
    except (ValueError, zlib.error) as error:
        raise UserError(f"{path} is cut off or damaged: {error}") from None
    return variables


def _unpack(data, path, before):
    """Unpacks one element: no more than its tag announces.

    Args:
      data: the packed bytes.
      path: path of the file.
      before: int, bytes that elements before it have taken.
    """
    unpacker = zlib.decompressobj()
    tag = unpacker.decompress(data, 8)
    size = int.from_bytes(tag[4:], "little")
    num_bytes = COPIES * (before + size)
    require_memory(num_bytes, f"{path}, unpacked,", "is it damaged?")
    content = tag + unpacker.decompress(unpacker.unconsumed_tail, size + 1)
    if not unpacker.eof:
        raise ValueError("compressed data shorter or longer than announced")
    return memoryview(content)


def _elements(view):
    """Yields (type, data) of the elements that follow each other in `view`."""
    position = 0
    while position < len(view):
        tag = view[position : position + 8]
        if len(tag) < 8:
            raise ValueError("it ends inside the tag of an element")
        kind, size = struct.unpack("<II", tag)
        if kind >> 16:  # a small element: its data is in the tag
            kind, size = kind & 0xFFFF, kind >> 16
            if size > 4:
                raise ValueError("a small element of more than 4 bytes")
            yield kind, tag[4 : 4 + size]
            position += 8
            continue
        data = view[position + 8 : position + 8 + size]
        if len(data) < size:
            raise ValueError(
                f"an element announces {size} bytes, and only {len(data)} "
                "follow"
            )
        yield kind, data
        # Elements begin at multiples of 8 bytes, except after compressed ones.
        padding = 0 if kind == _COMPRESSED else -size % 8
        position += 8 + size + padding


def _parse_matrix(data, is_field=False):
    """(name, value) of an array; the value of unknown kinds is None."""
    if not data:
        return "", np.zeros((0, 0))
    elements = _elements(data)
    flags = _next(elements, _UINT32)
    shape = _next(elements, _INT32)
    name = _next(elements).tobytes().decode("ascii")
    if len(flags) != 2 or len(shape) < 2 or (shape < 0).any():
        raise ValueError("an array without class or shape")
    shape = tuple(shape.tolist())
    array_class = int(flags[0]) & 0xFF
    if array_class in _NUMBER_CLASSES:
        values = _next(elements)
        if len(values) != math.prod(shape):
            raise ValueError(
                f"{name or 'an array'} has {len(values)} values for the shape "
                f"{shape}"
            )
        return name, values.reshape(shape, order="F")
    if array_class == _STRUCT and math.prod(shape) == 1 and not is_field:
        (name_size,) = _next(elements, _INT32).tolist()
        names = _next(elements).tobytes()
        fields = {}
        for start in range(0, len(names), name_size):
            field = names[start : start + name_size].split(b"\0")[0]
            kind, data = next(elements, (0, b""))
            if kind != _MATRIX:
                raise ValueError("a struct without its fields")
            _, value = _parse_matrix(data, is_field=True)
            if value is not None:
                fields[field.decode("ascii")] = value
        return name, fields
    return name, None


def _next(elements, wanted=None):
    """The numbers of the next element, of any type or of the wanted one."""
    kind, data = next(elements, (0, b""))
    if kind not in _NUMBER_TYPES or wanted not in (None, kind):
        raise ValueError(
            f"an element of type {kind} where numbers must be"
            if kind
            else "it ends inside an array"
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
