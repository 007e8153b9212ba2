"""User errors, interruptions, and how a command ends."""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import threading

# SIGHUP, on Windows SIGBREAK, arrives when a terminal is closed; SIGUSR1 or
# SIGUSR2, if chosen, before Slurm ends a job.
_NAMES = ("SIGTERM", "SIGINT", "SIGHUP", "SIGBREAK", "SIGUSR1", "SIGUSR2")
_SIGNALS = [getattr(signal, n) for n in _NAMES if hasattr(signal, n)]


def printable(text):
    """Escapes control characters, which end a line or control a terminal."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


class UserError(Exception):
    """A wrong flag, file or value; commands print it as one line."""

    def __str__(self):
        return printable(" ".join(super().__str__().splitlines()))


class Interrupted(BaseException):
    """A signal stopped the work; `except Exception` does not catch this."""

    def __init__(self, message, signal_number):
        super().__init__(message)
        self.signal_number = signal_number


class StopSignal:
    """A signal handler; `number` is that of the first signal, or 0.

    A second signal ends the process.
    """

    number = 0

    def __call__(self, number, frame):
        if self.number:
            print("Stopped without saving", file=sys.stderr, flush=True)
            # TensorFlow would replace an exception of a signal handler.
            os._exit(128 + number)
        self.number = number


@contextlib.contextmanager
def user_errors(prefix):
    """Turns any exception into a `UserError` that begins with `prefix`.

    Put it around only the call that can fail because of a user's file, flag or
    value, and name that in the prefix: the path of a file to read.
    """
    try:
        is_known = os.path.isfile(prefix) or os.path.isdir(prefix)
        if not is_known and os.path.exists(prefix):  # reading may never end
            raise UserError(f"{prefix} is a pipe, socket or device, not a file")
        yield
    except UserError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and (number := error.errno):
            # Errors of host names have negative numbers.
            reason = os.strerror(number) if number > 0 else error.strerror
        else:
            line = str(error).strip().partition("\n")[0]
            reason = f"{type(error).__name__}: {line[:300]}"
        raise UserError(f"{prefix}: {reason}") from error


def shell_command(words):
    """Joins the words of a command to one line, quoted for the shell."""
    join = subprocess.list2cmdline if sys.platform == "win32" else shlex.join
    return join(words)


class _Output:
    """A text stream that drops its text once this cannot be written."""

    def __init__(self, stream, name=None):  # with a name, it raises the error
        self._stream, self._name = stream, name

    def __getattr__(self, attribute):
        return getattr(self._stream, attribute)

    def write(self, text):
        return self._try(self._stream.write, text)

    def flush(self):
        self._try(self._stream.flush)

    def _try(self, method, *arguments):
        try:
            return method(*arguments)
        except OSError as error:  # a closed pipe or terminal, a full disk
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._stream.fileno())
            if self._name:
                raise OSError(error.errno, error.strerror, self._name) from None


@contextlib.contextmanager
def optional_output(name=None):
    """Goes on when nobody reads standard error or, without `name`, output."""
    redirect = contextlib.redirect_stdout(_Output(sys.stdout, name))
    with redirect, contextlib.redirect_stderr(_Output(sys.stderr)):
        yield


@contextlib.contextmanager
def exit_on_user_error(command, is_debug=lambda: False):
    """Prints a `UserError` as "`command`: error" and exits with status 1.

    After an `Interrupted`, prints how to resume the work and exits with status
    128 + the signal's number. If `is_debug()`, a `UserError` propagates.
    """
    with optional_output("standard output"):
        try:
            try:
                yield
            finally:
                sys.stdout.flush()
        except BrokenPipeError:  # as in predict.py ... | head
            sys.exit(1)
        except (UserError, OSError) as error:
            if is_debug() or getattr(error, "filename", "") is None:
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
    """Calls `handler(number, frame)` for SIGTERM, Ctrl-C and other signals.

    An ignored SIGHUP, as under nohup, stays ignored. Python allows handlers
    only in the main thread.
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
