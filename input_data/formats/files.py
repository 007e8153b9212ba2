"""Opening files, and finding them in a data folder."""

import contextlib
import gzip
import os
import pathlib
import stat
import zlib

from input_data import memory
from old.errors import UserError
from old.text import listed

_CHUNK = 2**20


@contextlib.contextmanager
def opened(path):
    """A context for reading a file; one that ends in .gz is unpacked.

    Args:
      path: `pathlib.Path`.

    Yields:
      A binary file.

    Raises:
      UserError: naming the file, if it is not a regular one or cannot be
        read, or its gzip data is cut off or damaged.
    """
    try:
        require_regular(path)
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            yield file
    except EOFError:
        raise UserError(
            f"{path} is cut off: the gzip data ends early"
        ) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{path} is not a sound gzip file: {error}") from None
    except OSError as error:
        raise UserError(
            f"{path} cannot be read: {error.strerror or error}"
        ) from None


def read_bytes(path, limit=None):
    """The content of a file; one that ends in .gz is unpacked.

    Args:
      path: `pathlib.Path`.
      limit: int, bytes that it may have; by default what fits in memory.

    Raises:
      UserError: naming the file, if it has more, or as `opened`.
    """
    if limit is None:
        limit = memory.available() // memory.COPIES  # parts, then the whole
    chunks, size = [], 0
    with opened(path) as file:
        while chunk := file.read(_CHUNK):
            chunks.append(chunk)
            size += len(chunk)
            if size > limit:
                raise UserError(
                    f"{path} is too large: it has over {limit:,} bytes"
                )
    return b"".join(chunks)


def require_regular(path):
    """Refuses what is there but is no file, and may never end.

    Args:
      path: path.

    Raises:
      OSError: if it is not there, or may not be looked at.
      UserError: if it is a pipe, a socket or a device.
    """
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise UserError(f"{path} is a pipe, a socket or a device, not a file")


def require_folder(path):
    """The folder that --data_dir names.

    Args:
      path: path.

    Returns:
      `pathlib.Path`.

    Raises:
      UserError: if it is not a folder, or may not be read.
    """
    if os.path.isfile(path):
        raise UserError(
            f"--data_dir={path} is not a folder: name the folder with the file"
        )
    try:
        os.scandir(path).close()
        # To open the files takes another permission than to list them.
        os.stat(os.path.join(path, "."))
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"--data_dir={path} is not a folder") from None
    except OSError as error:
        raise UserError(
            f"--data_dir={path} cannot be read: {error.strerror}"
        ) from None
    return pathlib.Path(path)


def paths_in(folder):
    """The paths in a folder, sorted.

    Args:
      folder: `pathlib.Path`.

    Raises:
      UserError: naming the folder, if it cannot be read.
    """
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise UserError(f"{folder} cannot be read: {error.strerror}") from None


def find(data_dir, *names, hint=""):
    """The path of the first of some names that is there.

    Args:
      data_dir: path of the folder.
      *names: strings.
      hint: string, what to say besides if there is none.

    Raises:
      UserError: if there is none; it says what there is instead.
    """
    folder = require_folder(data_dir)
    # Else what `opened` says why it cannot be read.
    for is_there in (os.path.isfile, os.path.lexists):
        for name in names:
            if is_there(folder / name):
                return folder / name
    raise UserError(
        f"--data_dir={data_dir} has no {' or '.join(names)}; it has: "
        f"{listing(folder)}{hint}"
    )


def listing(folder):
    """The first few names in a folder, for a message."""
    names = [path.name for path in paths_in(folder)]
    return listed(names, 10) or "nothing"
