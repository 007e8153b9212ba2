"""Files that are written whole or not at all."""

import contextlib
import os
import pathlib
import re
import socket

import tensorflow as tf

from common.errors import UserError


@contextlib.contextmanager
def whole_file(path):
    """A context for writing a file, which is in its place only once whole.

    What is written goes to another name beside it, is flushed to the disk and
    renamed. If that fails nothing is left, and if the process is killed what
    `remove_leftovers` removes.

    Args:
      path: `pathlib.Path` of the file.

    Yields:
      `pathlib.Path`, where to write it.

    Raises:
      UserError: if the file is there already, or cannot be written.
    """
    refuse_existing(path)
    partial = path.with_name(
        f".{path.name}.{socket.gethostname()}.{os.getpid()}.partial"
    )
    try:
        yield partial
        flush(partial)
        partial.replace(path)
        flush(path.parent)
    except (OSError, tf.errors.OpError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path} cannot be written: {reason}") from None
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def refuse_existing(path):
    """Raises UserError if there is such a file."""
    if os.path.exists(path):
        raise UserError(
            f"{path} is there already: move it away, or name another folder"
        )


def remove_leftovers(folder):
    """Removes the parts of files of processes of this machine that are gone.

    Args:
      folder: `pathlib.Path`.

    Raises:
      UserError: if the folder cannot be read, or nothing removed from it.
    """
    host = re.escape(socket.gethostname())
    pattern = re.compile(rf"\..+\.{host}\.(\d+)\.partial")
    try:
        for path in folder.iterdir():
            match = pattern.fullmatch(path.name)
            if match and not _is_alive(int(match[1])):
                path.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(
            f"{folder} cannot be tidied up: {error.strerror}"
        ) from None


def _is_alive(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def make_folder(path):
    """Makes a folder if it is not there, and returns its `pathlib.Path`.

    Raises:
      UserError: if it cannot be made.
    """
    folder = pathlib.Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"the folder {folder} cannot be made: {error.strerror}"
        ) from None
    return folder


def flush(path):
    """Waits until a file or directory is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
