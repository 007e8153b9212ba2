"""One training per folder, and signals that wait for the end of a step."""

import contextlib
import fcntl
import os
import time

from common.errors import Interrupted, UserError, handling_signals, reading

# `is_training` in other processes locks the folder for an instant.
_SECONDS_TO_TRY = 0.5


@contextlib.contextmanager
def sole_trainer(directory):
    """Locks a folder, so that no other process trains in it.

    The lock leaves no file and ends with the process.

    Raises:
      UserError: if another process holds it.
    """
    with reading(directory):
        descriptor = os.open(directory, os.O_RDONLY)
    try:
        deadline = time.monotonic() + _SECONDS_TO_TRY
        while not _lock(descriptor, fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                raise UserError(f"another process is training in {directory}")
            time.sleep(_SECONDS_TO_TRY / 10)
        yield
    finally:
        os.close(descriptor)


def is_training(directory):
    """Whether a process trains in a folder, which may not exist."""
    try:
        descriptor = os.open(directory, os.O_RDONLY)
    except OSError:
        return False
    try:
        return not _lock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def _lock(descriptor, kind):
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class StopSignal:
    """Notes the first signal that ends a command; the second one raises.

    Attributes:
      number: int, the signal, or None.
    """

    def __init__(self):
        self.number = None
        self._handling = handling_signals(self._handle)

    def __enter__(self):
        self._handling.__enter__()
        return self

    def __exit__(self, *exception):
        self._handling.__exit__(*exception)

    def _handle(self, number, frame):
        if self.number is not None:
            raise Interrupted("Stopped without saving", number)
        self.number = number
