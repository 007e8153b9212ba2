"""Which predictions are wrong, and what the network takes for what."""

import dataclasses

import numpy as np

from input_data import features as keys
from training.config import EVAL_BATCH_SIZE


@dataclasses.dataclass(frozen=True)
class Mistake:
    """An image whose prediction is wrong.

    Attributes:
      image: float32 [H, W, C].
      labels: list of ints, its classes in ascending order.
      predictions: list of ints, the classes with the largest values, that of
        the largest first.
      values: list of floats, those values: capsule lengths, or logits of a
        network without capsules.
    """

    image: np.ndarray
    labels: list
    predictions: list
    values: list


def predicted_classes(logits, num_targets):
    """The classes with the largest logits, of equals the lower one first.

    Args:
      logits: array [N, classes].
      num_targets: int.

    Returns:
      int array [N, num_targets], that of the largest logit first.
    """
    order = np.argsort(-logits, axis=-1, kind="stable")
    return order[:, :num_targets]


def confusion_matrix(labels, logits, num_targets):
    """How often a class is taken for another.

    A label that is predicted counts on the diagonal. Labels that were missed
    count against the classes that were predicted in their place; when there
    are several, each against all of these in equal shares. So a row sums to
    the labels of its class, and a column to the predictions of its class.

    Args:
      labels: array [N, classes], k-hot with `num_targets` ones.
      logits: array [N, classes]. Examples whose logits are not finite predict
        nothing and do not count.
      num_targets: int, the number of labels of each example.

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


def wrong_examples(labels, logits, num_targets):
    """Which examples are not predicted exactly.

    Args:
      labels: array [N, classes], k-hot with `num_targets` ones.
      logits: array [N, classes]; those that are not finite are wrong.
      num_targets: int, the number of labels of each example.

    Returns:
      int array of their numbers in [0, N), ascending.
    """
    predicted = predicted_classes(logits, num_targets)
    hits = np.take_along_axis(labels, predicted, axis=-1).sum(axis=-1)
    finite = np.isfinite(logits).all(axis=-1)
    return np.flatnonzero((hits < num_targets) | ~finite)


def first_mistakes(pipeline, labels, logits, count):
    """The first test images whose prediction is wrong.

    Reads the images once more, so that nobody has to keep them all.

    Args:
      pipeline: `Pipeline`.
      labels: array [N, classes], k-hot, in the order of
        `Pipeline.evaluation_batches`.
      logits: array [N, classes], in the same order.
      count: int, how many at most.

    Returns:
      List of `Mistake`, in the order of the images.
    """
    num_targets = pipeline.spec.num_targets
    numbers = wrong_examples(labels, logits, num_targets)[:count]
    classes = predicted_classes(logits[numbers], num_targets)
    values = np.take_along_axis(logits[numbers], classes, axis=-1)
    return [
        Mistake(
            image=image,
            labels=np.flatnonzero(labels[number]).tolist(),
            predictions=classes[place].tolist(),
            values=values[place].tolist(),
        )
        for place, (number, image) in enumerate(
            zip(numbers, _images_at(pipeline, numbers), strict=True)
        )
    ]


def _images_at(pipeline, numbers):
    """Generates the test images with some ascending numbers."""
    if not len(numbers):
        return
    batches = pipeline.evaluation_batches(EVAL_BATCH_SIZE, numbers[-1] + 1)
    batch_of = numbers // EVAL_BATCH_SIZE
    for batch, (x, _) in enumerate(batches):
        for number in numbers[batch_of == batch]:
            yield x[keys.IMAGES][number % EVAL_BATCH_SIZE].copy()
