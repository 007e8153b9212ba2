"""Which predictions are right: for one target and for several.

A prediction is the set of the `num_targets` classes with the largest logits,
ties to the lower class index. Logits that are not all finite predict nothing.
"""

import keras
from keras import ops

from .tensor import Tensor


def _num_hits(labels, logits, num_targets):
    """How many of the predicted classes are labels: float32 [B]."""
    logits = ops.cast(logits, "float32")
    # A stable sort of the negated logits puts the lower of two equals first
    # on every backend; top_k promises that only on some.
    order = ops.argsort(-logits, axis=-1)
    predicted = ops.one_hot(
        order[:, :num_targets], logits.shape[-1], dtype="float32"
    )
    hits = ops.sum(predicted, axis=1) * ops.cast(labels, "float32")
    finite = ops.all(ops.isfinite(logits), axis=-1)
    return ops.sum(hits, axis=-1) * ops.cast(finite, "float32")


@keras.saving.register_keras_serializable(package="capsules")
def correct(labels: Tensor, logits: Tensor, num_targets: int = 1) -> Tensor:
    """1 where the predicted classes are exactly the labels, else 0.

    Args:
      labels: tensor [B, O], k-hot with `num_targets` ones.
      logits: tensor [B, O].
      num_targets: int, the number of labels of each example.

    Returns:
      float32 tensor [B].
    """
    hits = _num_hits(labels, logits, num_targets)
    return ops.cast(hits > num_targets - 0.5, "float32")


@keras.saving.register_keras_serializable(package="capsules")
def almost_correct(
    labels: Tensor, logits: Tensor, num_targets: int = 1
) -> Tensor:
    """1 where at least one predicted class is a label, else 0.

    Args and returns: as `correct`.
    """
    hits = _num_hits(labels, logits, num_targets)
    return ops.cast(hits > 0.5, "float32")
