"""Progress: on a terminal one line that changes, elsewhere one now and then."""

import sys
import time

from old.ending import discard, is_reader_gone

_SECONDS_BETWEEN_LINES = 10.0
_SECONDS_BETWEEN_CHANGES = 0.1
_CLEAR_LINE = "\r\x1b[K"


class Progress:
    """Shows how far a loop is, some of its values, its rate and the time left.

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
        self._start = self._shown = time.monotonic()
        self._is_terminal = self._stream.isatty()

    def update(self, done, values):
        """Shows that `done` of all steps are done.

        Args:
          done: int.
          values: dict from name to the number to show.
        """
        now = time.monotonic()
        wait = (
            _SECONDS_BETWEEN_CHANGES
            if self._is_terminal
            else _SECONDS_BETWEEN_LINES
        )
        if now - self._shown < wait and done < self._total:
            return
        self._shown = now
        # The rate is that of this run alone.
        rate = (done - self._first) / max(now - self._start, 1e-9)
        shown = [f"{self._name} {done}/{self._total}"]
        shown += [f"{name}: {value:.4f}" for name, value in values.items()]
        digits = ",.0f" if rate >= 100 else ".3g"
        shown += [f"{rate:{digits}} {self._name}s/s"]
        if done < self._total and rate:
            left = (self._total - done) / rate
            shown += [f"{as_duration(left)} left"]
        line = " - ".join(shown)
        if self._is_terminal:
            end = "\n" if done >= self._total else ""
            line = f"{_CLEAR_LINE}{line}"
        else:
            end = "\n"
        self._print(line, end)

    def clear(self):
        """Removes the line of a terminal, to write something else there."""
        if self._is_terminal:
            self._print(_CLEAR_LINE, end="")

    def _print(self, text, end):
        try:
            print(text, end=end, file=self._stream, flush=True)
        except OSError as error:  # the work goes on
            if is_reader_gone(error):
                discard(self._stream)


def as_duration(seconds):
    """Seconds for people: 45 s, 12 min, 3 h 20 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"
