"""How a command ends: by its work, a user's error, or a signal."""

import contextlib
import shlex
import signal
import sys

from common.errors import Interrupted, UserError

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextlib.contextmanager
def told(command):
    """A context that tells a user's error in one line, without a traceback.

    Args:
      command: string, the name that the line begins with.

    Raises:
      SystemExit: with 1 for a `UserError`; with 128 and its number for a
        signal, after the command that goes on where the job says that it was
        stopped.
    """
    try:
        yield
    except UserError as error:
        sys.exit(f"{command}: {error}")
    except Interrupted as stop:
        print(f"{stop}\nGo on by: {shlex.join(['python', *sys.argv])}")
        sys.exit(128 + stop.signal_number)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


@contextlib.contextmanager
def interrupted_by_signals():
    """A context in which SIGTERM and Ctrl-C raise `Interrupted`.

    It is for jobs of several trainings, which save by themselves.
    """

    def stop(number, frame):
        raise Interrupted("Stopped; what was trained is saved", number)

    before = {number: signal.signal(number, stop) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
