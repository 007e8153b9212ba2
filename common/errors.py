"""User errors, interruptions, and how a command ends."""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import threading

# SIGHUP, on Windows SIGBREAK, arrives when a terminal is closed.
_SIGNALS = [
    getattr(signal, name)
    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGBREAK")
    if hasattr(signal, name)
]


class UserError(Exception):
    """A wrong flag, file or value; commands print it as one line."""

    def __str__(self):
        line = " ".join(super().__str__().splitlines())
        # A terminal would obey the control characters of a file's name.
        return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)


class Interrupted(BaseException):
    """A signal stopped the work; `except Exception` does not catch this."""

    def __init__(self, message, signal_number):
        super().__init__(message)
        self.signal_number = signal_number


@contextlib.contextmanager
def reading(path):
    """Turns any failure to read or decode one file into a `UserError`.

    Use `with reading(path):` around only the library call that reads the file.
    """
    try:
        is_known = os.path.isfile(path) or os.path.isdir(path)
        if not is_known and os.path.exists(path):  # reading it may never end
            raise UserError(f"{path} is a pipe, socket or device, not a file")
        yield
    except UserError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno:
            # Errors of host names have negative numbers.
            number, text = error.errno, error.strerror
            reason = os.strerror(number) if number > 0 else text
        else:
            line = str(error).strip().partition("\n")[0]
            reason = f"{type(error).__name__}: {line[:300]}"
        raise UserError(f"{path}: {reason}") from error


def writing(path):
    """Turns any failure to write one file or folder into a `UserError`."""
    return reading(f"{path}: cannot write")


def shell_command(words):
    """Joins the words of a command to one line, quoted for the shell."""
    join = subprocess.list2cmdline if sys.platform == "win32" else shlex.join
    return join(words)


@contextlib.contextmanager
def exit_on_user_error(command, debug=False):
    """Prints a `UserError` as "`command`: error" and exits with status 1.

    After an `Interrupted`, prints how to resume the work and exits with status
    128 + the signal's number. If `debug` is true, a `UserError` propagates.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:  # as in predict.py ... | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (UserError, OSError) as error:
        if debug or getattr(error, "filename", "") is None:
            raise
        if isinstance(error, OSError):  # a folder that may not be entered
            error = f"{error.filename}: {error.strerror}"
        sys.exit(f"{command}: {error}")
    except Interrupted as stop:
        resume = shell_command(["python", *sys.argv])
        print(f"{stop}\nResume with: {resume}", file=sys.stderr)
        sys.exit(128 + stop.signal_number)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


@contextlib.contextmanager
def handling_signals(handler):
    """Calls `handler(number, frame)` for SIGTERM, Ctrl-C and SIGHUP.

    An ignored SIGHUP, as under nohup, stays ignored. Outside the main thread,
    where Python allows no signal handlers, the context does nothing.
    """
    is_main = threading.current_thread() is threading.main_thread()
    before = {
        number: signal.signal(number, handler)
        for number in (_SIGNALS if is_main else ())
        if number in (signal.SIGTERM, signal.SIGINT)
        or signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
