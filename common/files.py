"""Atomic writes of files and folders, and the lock of a folder."""

import contextlib
import errno
import functools
import os
import pathlib
import shutil
import sys
import tempfile
import time

from common.errors import UserError, writing

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_LOCK_FILE = ".lock"
# Windows opens no folders, and some file systems flush none.
_NO_FLUSH = (errno.EACCES, errno.EINVAL, errno.ENOTSUP)


@contextlib.contextmanager
def atomic_write(path, replace=False):
    """Writes a file or a folder under a temporary name, then renames it.

    Yields the path to write to. The content is flushed to disk before the
    rename. A failure leaves no partial file; `remove_partial` removes what a
    killed process left. Raises UserError if `path` exists, unless `replace`.
    """
    path = pathlib.Path(path)
    if not replace:
        refuse_existing(path)
    names = {"prefix": f".{path.name}.", "suffix": ".partial"}
    with (
        writing(path),
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


def write_files(folder, files):
    """Writes a dict from file name to content; returns the paths."""
    paths = [pathlib.Path(folder, name) for name in files]
    for path, content in zip(paths, files.values(), strict=True):
        write_file(path, content)
    return paths


def refuse_existing(path):
    """Raises UserError if the path exists."""
    if os.path.lexists(path):
        raise UserError(f"{path} already exists; choose another path")


def remove_partial(folder, name="*"):
    """Removes what killed writers of files `name` (a glob pattern) left."""
    for path in pathlib.Path(folder).glob(f".{name}.*.partial"):
        shutil.rmtree(path, ignore_errors=True)


def make_folder(path):
    """Creates a folder if needed and checks that it is writable; returns it."""
    folder = pathlib.Path(path)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    return folder


def _flush(path):
    is_folder = path.is_dir()
    # Windows flushes only what is open for writing.
    flags = os.O_RDONLY if is_folder else os.O_RDWR
    try:
        descriptor = os.open(path, flags)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if not (is_folder and error.errno in _NO_FLUSH):
            raise


@contextlib.contextmanager
def sole_process(directory, doing):
    """Locks a folder; raises UserError if another process has locked it.

    The lock ends with the context or the process; the hidden lock file stays.
    """
    path = pathlib.Path(directory, _LOCK_FILE)
    with path.open("a+b") as file:
        if not _lock(file.fileno(), path):
            raise UserError(f"another process is {doing} in {directory}")
        yield


sole_trainer = functools.partial(sole_process, doing="training")


def is_training(directory):
    """Whether a process trains in a folder; False if the folder is missing."""
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
        except (BlockingIOError, PermissionError):
            time.sleep(0.02)
        except OSError as error:
            _warn_that_nothing_locks(path.parent, error.strerror)
            return True
        else:
            return True
    return False


@functools.cache
def _warn_that_nothing_locks(directory, reason):
    print(
        f"Warning: {directory} cannot be locked ({reason}): start no second "
        "process there; an evaluation waits only a minute for a checkpoint",
        file=sys.stderr,
    )
