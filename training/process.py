"""One trainer to a directory, and signals that wait for the end of a step."""

import contextlib
import fcntl
import os
import signal
import time

from common.errors import InterruptedAtOnce, UserError

# Seconds that a trainer tries: who asks `is_training` locks for a moment.
_PATIENCE = 0.5


@contextlib.contextmanager
def sole_trainer(directory, flag="--summary_dir"):
    """Holds a directory, so that no second process trains in it.

    The lock is on the directory itself: it leaves no file, and ends with the
    process, however that ends.

    Args:
      directory: path of an existing directory.
      flag: string, by which the user names it.

    Raises:
      UserError: if another process holds it, or it cannot be locked.
    """
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        deadline = time.monotonic() + _PATIENCE
        while not _locked(descriptor, fcntl.LOCK_EX, directory):
            if time.monotonic() < deadline:
                time.sleep(_PATIENCE / 10)
                continue
            raise UserError(
                f"another process is training in {directory}: name another "
                f"{flag}, or wait until it has ended"
            )
        yield
    finally:
        os.close(descriptor)


def is_training(directory):
    """Whether a process trains in a directory, which need not be there.

    Raises:
      UserError: if that cannot be known.
    """
    try:
        descriptor = os.open(directory, os.O_RDONLY)
    except OSError:
        return False
    try:
        return not _locked(descriptor, fcntl.LOCK_SH, directory)
    finally:
        os.close(descriptor)


def _locked(descriptor, kind, directory):
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:  # of disks that are shared without locks
        raise UserError(
            f"{directory} cannot be locked, so that another process might "
            f"train there, too: {error.strerror}"
        ) from None
    return True


class StopSignal:
    """Notes SIGTERM and Ctrl-C, as a context manager.

    While a network is built, and its first step, which traces and compiles it,
    is not done, one interrupts at once. From `wait` on the first is noted for
    the training loop to see after its step; a second one interrupts at once.

    Attributes:
      number: int, the signal that came, or None.
      is_heeded: bool, whether the loop ends by it after this step: it may come
        at any time, and all that follows a step must know the same.
    """

    _SIGNALS = (signal.SIGTERM, signal.SIGINT)

    def __init__(self):
        self.number = None
        self.is_heeded = False
        self._waits = False

    def __enter__(self):
        self._before = {
            number: signal.signal(number, self._note)
            for number in self._SIGNALS
        }
        return self

    def __exit__(self, *exception):
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def wait(self):
        """From now on the first signal waits for the end of a step."""
        self._waits = True

    def _note(self, number, frame):
        if not self._waits:
            raise InterruptedAtOnce(
                "Stopped before the first step of this run", number
            )
        if self.number is not None:
            raise InterruptedAtOnce(
                "Stopped at once: the steps since the last checkpoint are lost",
                number,
            )
        self.number = number
