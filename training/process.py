"""One trainer to a directory, and signals that wait for the end of a step."""

import contextlib
import fcntl
import os
import time

from old.ending import handling_signals
from old.errors import InterruptedAtOnce, UserError

# Seconds that a trainer tries: who asks `is_training` locks for a moment.
_PATIENCE = 0.5
# Seconds in which a second signal is the first once more: schedulers signal
# each process of a job, and those of a cluster tell each other.
_SAME = 1.0


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
    try:
        descriptor = os.open(directory, os.O_RDONLY)
    except OSError as error:
        raise UserError(
            f"the folder {directory} cannot be read: {error.strerror}"
        ) from None
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
        if os.fstat(descriptor).st_nlink == 0:
            raise UserError(
                f"another process has just removed {directory}: try again"
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
    """Notes the signals that end a command, as a context manager.

    While a network is built, and its first step, which traces and compiles it,
    is not done, one interrupts at once. From `wait` on the first is noted for
    the training loop to see after its step; another, later one interrupts at
    once.

    Attributes:
      number: int, the signal that came, or None.
      is_heeded: bool, whether the loop ends by it after this step: it may come
        at any time, and all that follows a step must know the same.
    """

    def __init__(self):
        self.number = None
        self.is_heeded = False
        self._waits = False
        self._handling = handling_signals(self._note)

    def __enter__(self):
        self._handling.__enter__()
        return self

    def __exit__(self, *exception):
        self._handling.__exit__(*exception)

    def wait(self):
        """From now on the first signal waits for the end of a step."""
        self._waits = True

    def heed(self, number):
        """The loop ends by a signal, which may have come to another process."""
        self._keep(number)
        self.is_heeded = True

    def _keep(self, number):
        if self.number is None:
            self.number, self._since = number, time.monotonic()

    def _note(self, number, frame):
        if not self._waits:
            raise InterruptedAtOnce(
                "Stopped before the first step of this run", number
            )
        is_later = self.number and time.monotonic() > self._since + _SAME
        if is_later:
            raise InterruptedAtOnce(
                "Stopped at once: the steps since the last checkpoint are lost",
                number,
            )
        self._keep(number)
