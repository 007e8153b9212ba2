"""Atomic writes of files and folders, and the lock of a training's folder."""

import contextlib
import fcntl
import os
import pathlib
import shutil
import tempfile
import time

from common.errors import UserError, writing


@contextlib.contextmanager
def atomic_write(path, replace=False):
    """Writes a file or a folder under a temporary name, then renames it.

    The content is flushed to disk before the rename. A failure leaves nothing
    behind; `remove_partial` removes what a killed process left. Unless
    `replace`, an existing file is refused.

    Yields:
      `pathlib.Path` to write to.
    """
    path = pathlib.Path(path)
    if not replace:
        refuse_existing(path)
    names = {"prefix": f".{path.name}.", "suffix": ".partial"}
    with (
        writing(path),
        tempfile.TemporaryDirectory(dir=path.parent, **names) as hidden,
    ):
        # Its own name inside, as its suffix tells libraries the format.
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
    """Writes a dict from name to content; returns the paths."""
    paths = [pathlib.Path(folder, name) for name in files]
    for path, content in zip(paths, files.values(), strict=True):
        write_file(path, content)
    return paths


def refuse_existing(path):
    """Raises UserError if the path exists."""
    if os.path.lexists(path):
        raise UserError(f"{path} already exists; choose another path")


def remove_partial(folder, name="*"):
    """Removes what killed processes left of the files of a name, or of all."""
    for path in pathlib.Path(folder).glob(f".{name}.*.partial"):
        shutil.rmtree(path, ignore_errors=True)


def make_folder(path):
    """Creates a folder, if it does not exist, for writing; returns its path."""
    folder = pathlib.Path(path)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    return folder


def _flush(path):
    with _opened(path) as descriptor:
        os.fsync(descriptor)


@contextlib.contextmanager
def sole_trainer(directory):
    """Locks a folder, so that no other process trains in it.

    The lock leaves no file and ends with the process.

    Raises:
      UserError: if another process holds it.
    """
    with _opened(directory) as descriptor:
        # `is_training` in other processes locks the folder for an instant.
        for _ in range(10):
            if _lock(descriptor, fcntl.LOCK_EX):
                break
            time.sleep(0.05)
        else:
            raise UserError(f"another process is training in {directory}")
        yield


def is_training(directory):
    """Whether a process trains in a folder, which may not exist."""
    if not os.path.exists(directory):
        return False
    with _opened(directory) as descriptor:
        return not _lock(descriptor, fcntl.LOCK_SH)


@contextlib.contextmanager
def _opened(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _lock(descriptor, kind):
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
