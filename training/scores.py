"""Right and wrong predictions.

A prediction is the `num_targets` classes with the largest logits; ties go to
the lower class. Logits that are not finite predict nothing.
"""

import dataclasses
import functools
import typing

import numpy as np

# A class with a longer capsule counts as present. The margin loss pulls
# lengths above 0.9 or below 0.1 (paper, section 3).
PRESENT_LENGTH = 0.5


@dataclasses.dataclass(frozen=True)
class Score:
    """Counts of right and wrong predictions.

    Attributes:
      num_examples: int.
      correct: int, examples of which all classes are predicted.
      almost_correct: int, examples of which at least one class is predicted.
      confident: int, correct examples whose logits of all labels are above
        `PRESENT_LENGTH`.
      loss: float, the mean loss; None for an ensemble.
    """

    num_examples: int
    correct: int
    almost_correct: int
    confident: int
    loss: float | None = None

    @property
    def wrong(self):
        """Number of examples that are not correct."""
        return self.num_examples - self.correct

    @property
    def almost_wrong(self):
        """Number of examples that are not even almost correct."""
        return self.num_examples - self.almost_correct

    @property
    def wrong_percent(self):
        """Error rate in percent."""
        return 100.0 * self.wrong / self.num_examples

    def __str__(self):
        return (
            f"Total wrong predictions: {self.wrong}, "
            f"wrong percent: {self.wrong_percent:.2f}%"
        )

    @property
    def pairs_text(self):
        """`correct` and `confident` as text, for pairs that do not overlap."""
        correct, confident = (
            f"{count} of {self.num_examples} ({count / self.num_examples:.2%})"
            for count in (self.correct, self.confident)
        )
        return (
            f"Both classes right: {correct}; and both above {PRESENT_LENGTH}: "
            f"{confident}"
        )


def predicted_classes(logits, num_targets):
    """Int array [..., num_targets], that of the largest logit first."""
    order = np.argsort(-logits, axis=-1, kind="stable")
    return order[..., :num_targets]


@dataclasses.dataclass(frozen=True)
class Predictions:
    """Predictions for a whole split.

    Attributes:
      labels: float32 array [N, classes], k-hot.
      logits: float32 array [N, classes].
      losses: float32 array [N]; None for an ensemble.
      pipeline: `Pipeline` of the images.
      dataset: string, the name of the data set.
      images_per_second: float, of the evaluation.
      checkpoint: `Checkpoint`; None for an ensemble.
    """

    labels: np.ndarray
    logits: np.ndarray
    losses: np.ndarray | None
    pipeline: typing.Any
    dataset: str
    images_per_second: float
    checkpoint: typing.Any = None

    @functools.cached_property
    def score(self):
        hits = self._num_hits
        correct, almost = hits >= self._num_targets, hits >= 1
        is_long = self.logits > PRESENT_LENGTH
        confident = correct & (is_long | (self.labels == 0)).all(axis=-1)
        counts = [int(c.sum()) for c in (correct, almost, confident)]
        loss = None if self.losses is None else float(self.losses.mean())
        return Score(len(self.labels), *counts, loss)

    @functools.cached_property
    def classes(self):
        """The predicted classes, int [N, num_targets]."""
        return predicted_classes(self.logits, self._num_targets)

    @property
    def wrong(self):
        """Indices of the examples that are not correct, ascending."""
        return np.flatnonzero(self._num_hits < self._num_targets)

    @property
    def wrong_rows(self):
        """`wrong` as rows of the data file, if examples are single images."""
        spec = self.pipeline.spec
        rows = spec.rows if spec.num_targets == 1 else None
        return [rows[i] if rows else int(i) for i in self.wrong]

    @functools.cached_property
    def confusion_matrix(self):
        """How often each class is predicted for each label.

        A label that is predicted counts on the diagonal. With several targets
        the missed labels are shared equally among the wrong predictions, so
        that a row sums to the number of labels of its class.

        float64 array [classes, classes]: rows are labels, columns predictions.
        """
        finite = np.isfinite(self.logits).all(axis=-1)
        labels = self.labels[finite].astype(bool)
        predicted = np.zeros_like(labels)
        np.put_along_axis(predicted, self.classes[finite], True, axis=-1)
        hits = labels & predicted
        missed = (labels & ~hits).astype(float)
        spurious = (predicted & ~hits).astype(float)
        shares = missed / np.maximum(missed.sum(axis=-1, keepdims=True), 1)
        return np.diag(hits.sum(axis=0)) + shares.T @ spurious

    @property
    def _num_targets(self):
        return self.pipeline.spec.num_targets

    @property
    def _num_hits(self):
        hits = np.take_along_axis(self.labels, self.classes, axis=-1)
        return hits.sum(axis=-1) * np.isfinite(self.logits).all(axis=-1)
