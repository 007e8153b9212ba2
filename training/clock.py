"""The time of training steps."""

import time


class Clock:
    """Measures laps of one or more steps, without the time between laps.

    Attributes:
      seconds: float, the time of all laps, earlier runs included.
    """

    def __init__(self, batch_size, seconds=0.0):
        self.seconds = seconds
        self._batch_size = batch_size
        self._steps = 0
        self._start = self._last_point = (0, seconds)
        self._lap_start = time.monotonic()

    def restart(self):
        """Begins a lap; the time since the last one does not count."""
        self._lap_start = time.monotonic()

    def lap(self, steps):
        """Ends a lap of `steps` and begins the next."""
        now = time.monotonic()
        self.seconds += now - self._lap_start
        self._steps += steps
        self._lap_start = now

    @property
    def images_per_second(self):
        """The speed of this run; None before its first lap."""
        return self._speed_since(self._start)

    def point(self):
        """The speed since the last point in images/s; None without a lap."""
        speed = self._speed_since(self._last_point)
        self._last_point = self._steps, self.seconds
        return speed

    def _speed_since(self, place):
        steps, seconds = place
        if self._steps == steps:
            return None
        images = (self._steps - steps) * self._batch_size
        return images / (self.seconds - seconds)
