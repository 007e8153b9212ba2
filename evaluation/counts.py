"""Which predictions are right, and what the network takes for what.

A prediction is the `num_targets` classes with the largest logits, of equals
the lower ones. Logits that are not finite predict nothing.

Arguments of all functions here:
  labels: array [N, classes], k-hot with `num_targets` ones.
  logits: array [N, classes].
  num_targets: int, the number of labels of each example.
"""

import dataclasses

import numpy as np

# Longer capsules say that their class is in the image. The paper's margin
# loss (section 3) pulls lengths to 0.9 or more, or to 0.1 or less.
PRESENT_LENGTH = 0.5


@dataclasses.dataclass(frozen=True)
class Score:
    """Counts of right and wrong predictions.

    Attributes:
      num_examples: int, all that were evaluated.
      correct: int, all classes of the example are right.
      almost_correct: int, at least one is.
      confident: int, all are right and have values above `PRESENT_LENGTH`,
        as lengths and probabilities of classes that are there should.
      loss: float, the mean of the training's loss; None of an ensemble.
    """

    num_examples: int
    correct: int
    almost_correct: int
    confident: int
    loss: float | None = None

    @property
    def wrong(self):
        """How many are not correct."""
        return self.num_examples - self.correct

    @property
    def almost_wrong(self):
        """How many are not even almost correct."""
        return self.num_examples - self.almost_correct

    @property
    def wrong_percent(self):
        """`wrong` in percent of the examples."""
        return 100.0 * self.wrong / self.num_examples

    def __str__(self):
        return (
            f"Total wrong predictions: {self.wrong}, "
            f"wrong percent: {self.wrong_percent:.2f}%"
        )

    @property
    def measures(self):
        """Both measures of pairs that were put together, for people."""
        right, confident = (
            f"{count} of {self.num_examples} ({count / self.num_examples:.2%})"
            for count in (self.correct, self.confident)
        )
        return (
            f"Both classes right: {right}; and both above {PRESENT_LENGTH}: "
            f"{confident}"
        )


def score(labels, logits, num_targets):
    """The `Score` of predictions."""
    hits = _num_hits(labels, logits, num_targets)
    correct, almost = hits >= num_targets, hits >= 1
    above = ((logits > PRESENT_LENGTH) | (labels == 0)).all(axis=-1)
    counts = [int(c.sum()) for c in (correct, almost, correct & above)]
    return Score(len(labels), *counts)


def wrong_examples(labels, logits, num_targets):
    """Numbers in [0, N), ascending, of those not predicted exactly."""
    return np.flatnonzero(_num_hits(labels, logits, num_targets) < num_targets)


def _num_hits(labels, logits, num_targets):
    """How many of the predicted classes are labels: [N]."""
    places = predicted_classes(logits, num_targets)
    hits = np.take_along_axis(labels, places, axis=-1).sum(axis=-1)
    return hits * np.isfinite(logits).all(axis=-1)


def predicted_classes(logits, num_targets):
    """Int array [N, num_targets], that of the largest logit first."""
    order = np.argsort(-logits, axis=-1, kind="stable")
    return order[..., :num_targets]


def confusion_matrix(labels, logits, num_targets):
    """How often a class is taken for another.

    A label that is predicted counts on the diagonal. Labels that were missed
    count against the classes that were predicted in their place; when there
    are several, each against all of these in equal shares. So a row sums to
    the labels of its class, and a column to the predictions of its class.

    Returns:
      float64 array [classes, classes]: rows are labels, columns predictions.
    """
    finite = np.isfinite(logits).all(axis=-1)
    labels, logits = labels[finite].astype(bool), logits[finite]
    predicted = np.zeros_like(labels)
    places = predicted_classes(logits, num_targets)
    np.put_along_axis(predicted, places, True, axis=-1)
    hits = labels & predicted
    missed = (labels & ~hits).astype(float)
    spurious = (predicted & ~hits).astype(float)
    shares = missed / np.maximum(missed.sum(axis=-1, keepdims=True), 1)
    return np.diag(hits.sum(axis=0)) + shares.T @ spurious
