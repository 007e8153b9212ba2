"""The checkpoints of a training, in a folder: their names, and which stay."""

import os
import pathlib
import re
import shutil
import stat

from old.errors import UserError

NAME = re.compile(r"model\.ckpt-(\d+)")
_HIDDEN = re.compile(r"\.model\.ckpt-\d+\.(.+\.)?(partial|removed)", re.DOTALL)


def path_of(directory, step):
    """The path of the checkpoint of a step."""
    return pathlib.Path(directory) / f"model.ckpt-{step}"


def find_all(directory):
    """The checkpoints in a directory.

    Returns:
      List of (step, path), by step; empty if there is no such directory.

    Raises:
      UserError: if the directory cannot be read.
    """
    found = []
    for path in _list(directory):
        match = NAME.fullmatch(path.name)
        if match and _is_folder(path):
            found.append((int(match.group(1)), path))
    return sorted(found)


def _is_folder(path):
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except FileNotFoundError:  # it was removed meanwhile
        return False
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None


def _list(directory):
    """The paths in a directory; none if it is not there."""
    try:
        return list(pathlib.Path(directory).iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UserError(
            f"{directory} cannot be read: {error.strerror}"
        ) from None


def set_aside(path):
    """Gives a damaged checkpoint a name that `find_all` does not find.

    Returns:
      The new path.
    """
    number = 0
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    return path.rename(aside)


def remove_old(directory, newest, keep):
    """Removes all but `keep` of the checkpoints up to step `newest`."""
    paths = [path for step, path in find_all(directory) if step <= newest]
    for path in paths[:-keep]:
        # Under another name first: a reader sees all of it or nothing.
        removed = path.with_name(f".{path.name}.removed")
        path.rename(removed)
        _remove(removed)


def remove_partial(directory):
    """Removes what a process that was killed while saving left behind."""
    for path in _list(directory):
        if _HIDDEN.fullmatch(path.name) and path.is_dir():
            _remove(path)


def _remove(path):
    """Removes a folder, or a link to one, as far as that may be done."""
    if path.is_symlink():
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path, ignore_errors=True)
