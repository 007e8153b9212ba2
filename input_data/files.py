"""Reading files whole, and finding them in a data folder."""

import gzip
import os
import pathlib
import zlib

from common.errors import UserError


def read_bytes(path):
    """The content of a file; one that ends in .gz is unpacked.

    Args:
      path: `pathlib.Path`.

    Raises:
      UserError: naming the file, if it cannot be read, or its gzip data is
        cut off or damaged.
    """
    try:
        if path.suffix == ".gz":
            with gzip.open(path, "rb") as file:
                return file.read()
        return path.read_bytes()
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


def listing(folder):
    """The first few names in a folder, for a message."""
    names = [path.name for path in paths_in(folder)]
    more = ", ..." if len(names) > 10 else ""
    return (", ".join(names[:10]) or "nothing") + more
