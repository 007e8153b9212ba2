"""Atomic writes, documents that are read again, and the lock of a folder."""

import contextlib
import errno
import functools
import json
import os
import pathlib
import re
import shutil
import sys
import tempfile
import time

from common.errors import UserError, user_errors

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

# An example of each document, see `require`.
EXAMPLES = json.loads(
    pathlib.Path(__file__).with_name("documents.json").read_text()
)
_LOCK_FILE = ".lock"


@contextlib.contextmanager
def atomic_write(path, replace=False):
    """Writes a file or a folder under a temporary name, then renames it.

    Yields the path to write to, which is flushed to disk before the rename.
    `remove_partial` removes what a killed process left. Raises UserError if
    `path` exists, unless `replace`.
    """
    path = pathlib.Path(path)
    if not replace and os.path.lexists(path):
        raise UserError(f"{path} already exists; choose another path")
    names = {"prefix": f".{path.name}.", "suffix": ".partial"}
    with (
        user_errors(f"{path}: cannot write"),
        tempfile.TemporaryDirectory(dir=path.parent, **names) as hidden,
    ):
        # The file keeps its suffix, which tells libraries the format.
        partial = pathlib.Path(hidden, path.name)
        yield partial
        for item in (*partial.rglob("*"), partial):
            _flush(item)
        partial.replace(path)
        _flush(path.parent)


def write_file(path, content):
    """Writes bytes or a string to a file, which is replaced if it exists."""
    if isinstance(content, str):
        content = content.encode()
    with atomic_write(path, replace=True) as partial:
        partial.write_bytes(content)


def read_json(path, kind):
    """Reads a document; raises UserError if it is not like `EXAMPLES[kind]`."""
    with user_errors(path):
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
    values = json.loads(json.dumps(values), parse_constant=lambda _: None)
    return json.dumps(values, **layout)


def write_json(path, values):
    """Writes a JSON file atomically, each list of integers >= 0 in one line."""
    text = to_json(values, indent=1) + "\n"
    one_line = re.sub(r"\[[\d\s,]+\]", lambda m: " ".join(m[0].split()), text)
    write_file(path, one_line)


def complete_rows(path, *kinds):
    """The complete lines of a CSV file with columns of these types.

    A process may be writing the last one, or was killed then.
    """
    with user_errors(path):
        lines = path.read_text().splitlines()[1:]
        if lines and lines[-1].count(",") < len(kinds) - 1:
            lines.pop()
        for line in lines:
            for kind, text in zip(kinds, line.split(","), strict=True):
                kind(text)
    return lines


def remove_partial(folder, name="*"):
    """Removes what killed writers of files `name` (a glob pattern) left."""
    for path in pathlib.Path(folder).glob(f".{name}.*.partial"):
        shutil.rmtree(path, ignore_errors=True)


def make_folder(path):
    """Creates a folder if needed and checks that it is writable; returns it."""
    folder = pathlib.Path(path)
    with user_errors(f"{folder}: cannot write"):
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    return folder


def _flush(path):
    if not path.is_dir():
        with path.open("r+b") as file:
            os.fsync(file.fileno())
        return
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        # Windows opens no folders, and some file systems flush none.
        if error.errno not in (errno.EACCES, errno.EINVAL, errno.ENOTSUP):
            raise


@contextlib.contextmanager
def sole_process(directory, doing):
    """Locks a folder until the process ends; removes what killed writers left.

    Raises UserError if another process has locked it. The lock file stays.
    """
    path = pathlib.Path(directory, _LOCK_FILE)
    with path.open("a+b") as file:
        if not _lock(file.fileno(), path):
            raise UserError(f"another process is {doing} in {directory}")
        remove_partial(directory)
        yield


sole_trainer = functools.partial(sole_process, doing="training")


def is_training(directory):
    """Whether a process trains in a folder, which need not exist."""
    path = pathlib.Path(directory, _LOCK_FILE)
    if not path.exists():
        return False
    # Other hosts see a lock on NFS only if the file is open for writing.
    with path.open("r+b" if os.access(path, os.W_OK) else "rb") as file:
        return not _lock(file.fileno(), path)


def _lock(descriptor, path):
    """Whether no other process has locked the file, as far as is known."""
    # `is_training` in other processes locks it for an instant.
    for _ in range(10):
        try:
            if sys.platform == "win32":
                msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
            else:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except (BlockingIOError, PermissionError):
            time.sleep(0.02)
        except OSError as error:
            _warn_that_nothing_locks(path.parent, error.strerror)
            return True
    return False


@functools.cache
def _warn_that_nothing_locks(directory, reason):
    print(
        f"Warning: {directory} cannot be locked ({reason}): start no second "
        "process there; an evaluation waits only a minute for a checkpoint",
        file=sys.stderr,
    )
