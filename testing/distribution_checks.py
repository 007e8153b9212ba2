"""Whether random numbers are uniform: for tests only."""

import math

import numpy as np

_BINS = 10
# Standard deviations of a count that chance does not reach.
_BOUND = 5


def check_uniform(values, low, high):
    """Asserts that values fill [low, high] evenly.

    Args:
      values: float array [N]; N a few hundred at least.
      low: float.
      high: float.
    """
    # Room for rounding, which the bins do not notice.
    room = (high - low) * 1e-4
    assert values.min() >= low - room
    assert values.max() <= high + room
    counts, _ = np.histogram(values, _BINS, (low - room, high + room))
    _check_counts(counts, len(values) / _BINS)


def check_equally_often(values, number):
    """Asserts that each of the integers 0 to number - 1 is as often.

    Args:
      values: integer array [N].
      number: int.
    """
    counts = np.bincount(values, minlength=number)
    assert len(counts) == number
    _check_counts(counts, len(values) / number)


def _check_counts(counts, expected):
    assert abs(counts - expected).max() < _BOUND * math.sqrt(expected)
