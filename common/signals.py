"""Ctrl-C and SIGTERM, where a job of several trainings is stopped by them."""

import contextlib
import signal

from common.errors import Interrupted

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextlib.contextmanager
def interrupted_by_signals():
    """A context in which a signal raises `Interrupted`."""

    def stop(number, frame):
        raise Interrupted("Stopped; what was trained is saved", number)

    before = {number: signal.signal(number, stop) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
