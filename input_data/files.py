"""Reading files whole, and finding them in a data folder."""

import gzip
import pathlib
import zlib

from errors import UserError


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
    """`path` as a `pathlib.Path`; UserError if it is not a folder."""
    folder = pathlib.Path(path)
    if not folder.is_dir():
        raise UserError(f"--data_dir={path} is not a folder")
    return folder


def listing(folder):
    """The first few names in a folder, for a message."""
    names = sorted(path.name for path in folder.iterdir())
    more = ", ..." if len(names) > 10 else ""
    return (", ".join(names[:10]) or "nothing") + more
