"""Progress on a terminal as a bar, elsewhere as a line now and then."""

import contextlib
import sys
import time

import keras

_SECONDS_BETWEEN_LINES = 10.0
_CLEAR_LINE = "\r\x1b[K"


class Progress:
    """Shows how far a loop is and some of its values.

    Args:
      first: int, steps that were done before.
      total: int, steps when all is done.
      name: string, what a step is.
      stream: file to write to; standard output by default.
    """

    def __init__(self, first, total, name="step", stream=None):
        self._first = first
        self._total = total
        self._name = name
        self._stream = stream or sys.stdout
        self._start = self._last_line = time.monotonic()
        self._bar = None
        if self._stream.isatty():
            # The bar estimates the time from the steps of this run alone.
            with self._as_output():
                self._bar = keras.utils.Progbar(total - first, unit_name=name)

    def update(self, done, values):
        """Shows that `done` of all steps are done.

        Args:
          done: int.
          values: dict from name to the number to show.
        """
        if self._bar is not None:
            # Means since the last summary, not to be averaged again.
            self._bar.stateful_metrics.update(values)
            with self._as_output():
                self._bar.update(done - self._first, list(values.items()))
            return
        now = time.monotonic()
        recent = now - self._last_line < _SECONDS_BETWEEN_LINES
        if recent and done < self._total:
            return
        self._last_line = now
        rate = (done - self._first) / max(now - self._start, 1e-9)
        shown = [f"{self._name} {done}/{self._total}"]
        shown += [f"{name}: {value:.4f}" for name, value in values.items()]
        digits = ",.0f" if rate >= 100 else ".3g"
        shown += [f"{rate:{digits}} {self._name}s/s"]
        print(" - ".join(shown), file=self._stream, flush=True)

    def clear(self):
        """Removes the bar from its line, to write something else there."""
        if self._bar is not None:
            print(_CLEAR_LINE, end="", file=self._stream, flush=True)

    def _as_output(self):
        """A context in which Keras' bar, which only prints, does so there."""
        return contextlib.redirect_stdout(self._stream)
