"""How a command ends: by its work, a user's error, or a signal."""

import contextlib
import errno
import os
import shlex
import signal
import sys

from old.errors import Interrupted, UserError

# SIGHUP comes when a terminal is closed.
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# Of a pipe that nobody reads, and of a terminal that was closed.
_READER_HAS_GONE = (errno.EPIPE, errno.EIO)


@contextlib.contextmanager
def told(command):
    """A context that tells a user's error in one line, without a traceback.

    Args:
      command: string, the name that the line begins with.

    Raises:
      SystemExit: with 1 for a `UserError`, or if what it prints cannot be
        written; with 128 and its number for a signal, after the command that
        goes on where the job says that it was stopped; with 128 and that of
        SIGPIPE if nobody reads what it prints.
    """
    try:
        yield
    except UserError as error:
        sys.exit(f"{command}: {error}")
    except Interrupted as stop:
        # Standard output may be for documents alone.
        again = f"Go on by: {shlex.join(['python', *sys.argv])}"
        try:
            print(stop, again, sep="\n", file=sys.stderr)
        except OSError:  # a terminal was closed
            discard(sys.stderr)
        sys.exit(128 + stop.signal_number)
    except BrokenPipeError:
        # The reader, such as head, has what it wants.
        sys.exit(128 + signal.SIGPIPE)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except OSError:
        lost = _flush_or_discard()
        if lost is None:  # it was another file
            raise
        sys.exit(_not_written(command, lost))
    else:
        lost = _flush_or_discard()
        if lost is not None and not is_reader_gone(lost):
            sys.exit(_not_written(command, lost))
    finally:
        _flush_or_discard()


def _flush_or_discard():
    """The error by which standard output takes no more, or None."""
    try:
        sys.stdout.flush()
    except OSError as error:
        discard(sys.stdout)
        return error
    return None


def _not_written(command, error):
    return f"{command}: standard output cannot be written: {error.strerror}"


def is_reader_gone(error):
    """Whether an OSError of a stream says that nobody reads it any more."""
    return error.errno in _READER_HAS_GONE


def discard(stream):
    """Lets what a stream still gets go nowhere: it takes no more.

    Python would write what is left on its way out, and fail once more.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextlib.contextmanager
def handling_signals(handler):
    """A context in which the signals that end a command call a function.

    They are SIGTERM, Ctrl-C and, where nohup has it not ignored, SIGHUP.

    Args:
      handler: function, as `signal.signal` takes it.
    """
    before = {
        number: signal.signal(number, handler)
        for number in _SIGNALS
        if number != signal.SIGHUP
        or signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler_before in before.items():
            signal.signal(number, handler_before)


def interrupted_by_signals():
    """A context in which signals raise `Interrupted`.

    It is for jobs of several trainings, which save by themselves.
    """

    def stop(number, frame):
        raise Interrupted("Stopped; what was trained is saved", number)

    return handling_signals(stop)
