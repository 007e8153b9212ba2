"""Reads and writes JSON, and reads CSV files, that the project reads again."""

import json
import pathlib
import re

from common.errors import reading
from common.files import write_file

# An example of each document, see `require`.
EXAMPLES = json.loads(pathlib.Path(__file__).with_suffix(".json").read_text())


def read_json(path, kind):
    """Reads a document; raises UserError if it is not like `EXAMPLES[kind]`."""
    with reading(path):
        content = json.loads(
            path.read_text(),  # without null, which is as good as missing
            object_pairs_hook=lambda pairs: {
                k: v for k, v in pairs if v is not None
            },
        )
        require(content, EXAMPLES[kind])
    return content


def require(value, example, place=""):
    """Raises ValueError if the types of a document are not those of an example.

    Keys that end with ? may be missing or null, and * stands for all keys. The
    first item of a list stands for all; a second one means that it is not
    empty. Numbers are at least those of the example; floats can be integers.
    """
    kind = type(example)
    is_right = type(value) in ((int, float) if kind is float else (kind,))
    if is_right and kind is list:
        is_right = len(value) >= len(example) - 1
    elif is_right and kind in (int, float):
        is_right = example <= value < 2**63
    if not is_right:
        raise ValueError(f"{place[1:] or 'content'} must not be {value!r:.60}")
    if kind is dict:
        for key, part in example.items():
            for name in value if key == "*" else [key.removesuffix("?")]:
                if value.get(name) is not None or name == key:
                    require(value.get(name), part, f"{place}/{name}")
    elif kind is list:
        for number, item in enumerate(value):
            require(item, example[0], f"{place}/{number}")


def to_json(values, **layout):
    """The text of a JSON document; numbers that are not finite become null."""
    text = json.dumps(values)
    finite = json.loads(text, parse_constant=lambda _: None)
    return json.dumps(finite, **layout)


def write_json(path, values):
    """Writes a JSON file atomically, each list of integers >= 0 in one line."""
    text = to_json(values, indent=1)
    text = re.sub(r"\[[\d\s,]+\]", lambda m: " ".join(m[0].split()), text)
    write_file(path, f"{text}\n")


def complete_rows(path, *kinds):
    """The lines below the header of a CSV file with columns of these types.

    Half a last line is left out: a process writes it, or was killed then.
    """
    with reading(path):
        lines = path.read_text().splitlines()[1:]
        if lines and lines[-1].count(",") < len(kinds) - 1:
            lines.pop()
        for line in lines:
            for kind, text in zip(kinds, line.split(","), strict=True):
                kind(text)
    return lines
