"""Files and folders that appear under their names only once they are whole."""

import contextlib
import os
import pathlib
import re
import shutil
import socket

from old.errors import UserError
from old.text import shortened

_LONGEST_REASON = 200


@contextlib.contextmanager
def whole(path, replace=False):
    """A context for writing a file or a folder, in its place only once whole.

    It is written, under its own name, in a hidden folder beside its place; so
    may be other files that go with it. All of them are flushed to the disk
    and moved to their places, in the order of their names. If that fails,
    what is not in its place yet is removed; if the process is killed,
    `remove_leftovers` does that.

    Args:
      path: `pathlib.Path` of the place, in a folder that is there.
      replace: bool, whether to take the place of a file.

    Yields:
      `pathlib.Path`, where to write it.

    Raises:
      OSError: if there is something in its place, or it cannot be written.
    """
    hidden = path.with_name(
        f".{path.name}.{socket.gethostname()}.{os.getpid()}.partial"
    )
    # Of a process that was killed and had this one's number.
    shutil.rmtree(hidden, ignore_errors=True)
    hidden.mkdir()
    try:
        yield hidden / path.name
        made = sorted(hidden.iterdir())
        for item in made:
            for part in (*sorted(item.rglob("*")), item):
                flush(part)
        for item in made:
            place = path.with_name(item.name)
            if os.path.lexists(place) and not replace:
                raise FileExistsError("there is something of this name")
            item.replace(place)
        flush(path.parent)
    finally:
        shutil.rmtree(hidden, ignore_errors=True)


@contextlib.contextmanager
def whole_file(path, replace=False):
    """`whole`, with errors for the user.

    Raises:
      UserError: if the file is there already, or cannot be written.
    """
    if not replace:
        refuse_existing(path)
    with user_errors(path), whole(path, replace) as partial:
        yield partial


def write_file(path, content):
    """Writes a file, in the place of one that may be there.

    Args:
      path: `pathlib.Path`.
      content: bytes.

    Raises:
      UserError: if it cannot be written.
    """
    with whole_file(path, replace=True) as partial:
        partial.write_bytes(content)


def write_files(folder, files):
    """Writes a dict from name to bytes, as `write_file`; gives the paths."""
    paths = [folder / name for name in files]
    for path, content in zip(paths, files.values(), strict=True):
        write_file(path, content)
    return paths


@contextlib.contextmanager
def user_errors(name, advice=""):
    """A context in which a failure to write is a UserError.

    Args:
      name: of what is written, for the message.
      advice: string, how the message ends.
    """
    import tensorflow as tf

    try:
        yield
    except (OSError, UnicodeError, tf.errors.OpError) as error:
        raise UserError(
            f"{name} cannot be written: {_reason(error)}{advice}"
        ) from error


def _reason(error):
    if isinstance(error, OSError):
        # HDF5 adds its internals to what the number says.
        return os.strerror(error.errno) if error.errno else error
    if isinstance(error, UnicodeError):
        return "its name must be UTF-8"
    # TensorFlow's, without the names of functions and temporary files.
    reason = error.message.split(" [Op:")[0].split("; ")[-1]
    return shortened(reason, _LONGEST_REASON)


def refuse_existing(path):
    """Raises UserError if there is such a file."""
    if os.path.lexists(path):
        raise UserError(
            f"{path} is there already: move it away, or name another"
        )


def remove_leftovers(folder):
    """Removes what killed processes of this machine were writing.

    Args:
      folder: `pathlib.Path`.

    Raises:
      UserError: if the folder cannot be read.
    """
    host = re.escape(socket.gethostname())
    pattern = re.compile(rf"\..+\.{host}\.(\d+)\.partial", re.DOTALL)
    try:
        for path in folder.iterdir():
            match = pattern.fullmatch(path.name)
            if match and not _is_alive(int(match[1])):
                shutil.rmtree(path, ignore_errors=True)
    except OSError as error:
        raise UserError(
            f"{folder} cannot be tidied up: {error.strerror}"
        ) from None


def _is_alive(process):
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def make_folder(path):
    """Makes a folder if it is not there, and returns its `pathlib.Path`.

    Raises:
      UserError: if it cannot be made or must not be written to.
    """
    folder = pathlib.Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise UserError(f"there is no permission to write to {folder}")
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
