"""Test images that a network predicts right, and wrong, one after the other."""

import collections

from old.errors import UserError
from training.config import EVAL_BATCH_SIZE

# Of the kind that is not asked for, as many wait as were met last.
_MOST_WAITING = 100


class ExampleSearch:
    """Finds the next test image of a kind, from the first on and around.

    Args:
      subject: `TrainedModel` with a pipeline.
    """

    def __init__(self, subject):
        self._subject = subject
        self._begin()

    def _begin(self):
        self._examples = self._all()
        self._waiting = {
            kind: collections.deque(maxlen=_MOST_WAITING)
            for kind in (True, False)
        }
        self._searched = {True: 0, False: 0}

    def _all(self):
        while True:
            yield from self._subject.examples()

    def next(self, is_right):
        """Looks at as many test images as a batch has, at most.

        Args:
          is_right: bool, whether it is to be predicted right.

        Returns:
          Pair of an `Example`, or None if there was none among those, and how
          many were looked at since the last that was found.

        Raises:
          UserError: if all test images were looked at in vain, or cannot be
            read.
        """
        waiting = self._waiting[is_right]
        for _ in range(EVAL_BATCH_SIZE):
            if waiting:
                break
            try:
                example = next(self._examples)
            except UserError:  # after which a generator is at its end
                self._begin()
                raise
            self._waiting[example.is_right].append(example)
            self._searched[is_right] += 1
        searched = self._searched[is_right]
        if waiting:
            self._searched[is_right] = 0
            return waiting.popleft(), searched
        num_examples = self._subject.pipeline.spec.num_examples
        if searched >= num_examples:
            self._searched[is_right] = 0
            kind = "right" if is_right else "wrong"
            raise UserError(f"none of {num_examples:,} test images is {kind}")
        return None, searched
