"""Ends what must not wait."""

import contextlib
import signal


class Hangs(BaseException):
    """What must not wait has waited; no error that code may expect."""


@contextlib.contextmanager
def within_seconds(seconds):
    """A context that ends by `Hangs` if it takes longer."""

    def end(number, frame):
        raise Hangs

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
