"""The time of training steps."""

import time


class Clock:
    """Measures the time of laps, each of one or more steps.

    `seconds` is the total time of all laps, including those of earlier runs.
    """

    def __init__(self, batch_size, seconds=0.0):
        self.seconds = seconds
        self._batch_size, self._images = batch_size, 0
        self._start = self._last_point = (0, seconds)
        self._lap_start = time.monotonic()

    def restart(self):
        """Begins a lap: the time since the last lap's end does not count."""
        self._lap_start = time.monotonic()

    def lap(self, steps):
        """Ends a lap of `steps` steps and begins the next lap."""
        self.seconds += time.monotonic() - self._lap_start
        self._images += steps * self._batch_size
        self.restart()

    @property
    def run_seconds(self):
        return self.seconds - self._start[1]

    @property
    def images_per_second(self):
        """Images/s of this run; None before the end of its first lap."""
        return self._speed_since(self._start)

    def point(self):
        """Images/s since the previous `point()`; None if no lap ended since."""
        speed = self._speed_since(self._last_point)
        self._last_point = self._images, self.seconds
        return speed

    def _speed_since(self, place):
        images, seconds = self._images - place[0], self.seconds - place[1]
        return images / seconds if images else None
