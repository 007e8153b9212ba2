"""Seconds of a training, without its evaluations."""

import contextlib
import time


class Clock:
    """Seconds, those of evaluations between training steps left out."""

    def __init__(self):
        self._left_out = 0.0

    def seconds(self):
        """Seconds since some moment, as a float."""
        return time.monotonic() - self._left_out

    @contextlib.contextmanager
    def stopped(self):
        """A context whose seconds do not count."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._left_out += time.monotonic() - began
