"""Right and wrong predictions."""

import dataclasses
import functools
import typing

import numpy as np

from input_data import keys

_BLOCK_ROWS = 2**14


@dataclasses.dataclass(frozen=True)
class Score:
    """Counts of examples, and the mean loss, which an ensemble lacks.

    In `correct` the predictions are exactly the labels, in `almost_correct` at
    least one label is predicted, and `confident` are the correct examples whose
    labels all have logits above `PRESENT_LENGTH`.
    """

    num_examples: int
    correct: int
    almost_correct: int
    confident: int
    loss: float | None = None

    @property
    def wrong(self):
        return self.num_examples - self.correct

    @property
    def wrong_percent(self):
        return 100.0 * self.wrong / self.num_examples

    @property
    def wrong_percent_interval(self):
        """95 % confidence interval of `wrong_percent` (Wilson 1927), a list."""
        from scipy.stats import binomtest  # takes a second

        test = binomtest(self.wrong, self.num_examples)
        return [100.0 * end for end in test.proportion_ci(method="wilson")]

    def __str__(self):
        return (
            f"Total wrong predictions: {self.wrong}, "
            f"wrong percent: {self.wrong_percent:.2f}%"
        )

    @property
    def wrong_percent_per_object(self):
        """For images of two objects: percentage of objects not predicted."""
        found = self.correct + self.almost_correct
        return 100.0 - 50.0 * found / self.num_examples

    @property
    def pairs_text(self):
        """`correct` and `confident` as text, for pairs that do not overlap."""
        total = self.num_examples
        return (
            f"Both classes right: {self.correct} of {total} "
            f"({self.correct / total:.2%}); "
            f"and both above {keys.PRESENT_LENGTH}: {self.confident} of "
            f"{total} ({self.confident / total:.2%})"
        )


@dataclasses.dataclass(frozen=True)
class Predictions:
    """Predictions for the N examples of a split.

    `labels` (k-hot) and `logits` are arrays [N, classes]. `losses` [N, 2] are
    those without regularizers and of classification. An ensemble has neither
    `losses` nor `checkpoint`.
    """

    labels: np.ndarray
    logits: np.ndarray
    losses: np.ndarray | None
    pipeline: typing.Any
    config: typing.Any  # a `Config`, also of the checkpoint's settings
    images_per_second: float
    checkpoint: typing.Any = None

    @functools.cached_property
    def score(self):
        present = self.labels > 0
        almost = (present & self.predicted).any(axis=-1)
        is_long = self.logits > keys.PRESENT_LENGTH
        confident = self._is_right & (is_long | ~present).all(axis=-1)
        counts = [int(c.sum()) for c in (self._is_right, almost, confident)]
        loss = None if self.losses is None else float(self.losses[:, 0].mean())
        return Score(len(self.labels), *counts, loss)

    @functools.cached_property
    def predicted(self):
        """`keys.predicted`; no class if a logit is infinite or NaN."""
        predicted = keys.predicted(self.logits, self.pipeline.spec.num_targets)
        return predicted & self._is_finite[:, None]

    @property
    def wrong(self):
        """Indices of the examples that are not correct, ascending."""
        return np.flatnonzero(~self._is_right)

    @property
    def wrong_rows(self):
        """`wrong` as a list of rows in the data file; for pairs, as it is."""
        spec = self.pipeline.spec
        rows = None if spec.num_targets == 2 else spec.rows
        return [rows[i] if rows else int(i) for i in self.wrong]

    @functools.cached_property
    def confusion_matrix(self):
        """Counts of labels (rows) by predicted class (columns), float64.

        Labels that are not predicted are shared equally among the example's
        wrong predictions. With any number of classes, a last row and column
        stand for no class: they get the wrong predictions or the labels that
        are more than the others, so that columns sum to the predictions and
        rows to the labels. Examples with non-finite logits do not count.
        """
        labels = (self.labels > 0) & self._is_finite[:, None]
        hits = labels & self.predicted
        matrix = np.pad(np.diag(hits.sum(axis=0).astype(float)), (0, 1))
        # In parts, as these arrays of float64 could fill the memory.
        for start in range(0, len(labels), _BLOCK_ROWS):
            rows = slice(start, start + _BLOCK_ROWS)
            missed = labels[rows] & ~hits[rows]
            spurious = self.predicted[rows] & ~hits[rows]
            excess = missed.sum(axis=-1) - spurious.sum(axis=-1)
            missed = np.column_stack([missed, np.maximum(-excess, 0)])
            spurious = np.column_stack([spurious, np.maximum(excess, 0)])
            totals = np.maximum(spurious.sum(axis=-1, keepdims=True), 1)
            matrix += missed.T @ (spurious / totals)
        has_any_number = self.pipeline.spec.num_targets == keys.SEVERAL_LABELS
        return matrix if has_any_number else matrix[:-1, :-1]

    @property
    def _is_finite(self):
        return np.isfinite(self.logits).all(axis=-1)

    @property
    def _is_right(self):
        is_equal = (self.labels > 0) == self.predicted
        return is_equal.all(axis=-1) & self._is_finite
