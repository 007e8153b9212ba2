"""Losses and metrics of the reference.

They are functions of k-hot labels [B, O] and logits [B, O], such as capsule
lengths, and return float32 [B], which training averages over the batch. With a
label for each pixel, labels and logits are [B, H, W, O], results [B, H, W].
"""

from typing import Any

import keras
from keras import ops

from .base_layers import Tensor, registered, require_shape

# Section 4.1 of the paper.
RECONSTRUCTION_WEIGHT = 0.0005


def float32(labels, logits):
    """Casts both, or raises ValueError if the labels are not one-hot."""
    labels, logits = (ops.cast(t, "float32") for t in (labels, logits))
    hint = " of the logits: one-hot, see `keras.utils.to_categorical`"
    require_shape("labels", labels, logits.shape, hint)
    return labels, logits


@registered
def margin_loss(
    labels: Tensor,
    logits: Tensor,
    absent_weight: float = 0.5,
    present_margin: float = 0.9,
    absent_margin: float = 0.1,
    present_weight: Any = 1.0,
) -> Tensor:
    """Margin loss: equation 4 of the paper, scaled as in the reference.

    The mean over the classes of
    0.5 * T * max(0, 0.9 - l)^2 + 0.25 * (1 - T) * max(0, l - 0.1)^2.
    The paper has the sum over the classes of twice these terms.

    Args:
      labels: tensor T [B, O], 1 for each class that is present, else 0.
      logits: tensor l [B, O].
      absent_weight: float, lambda of the paper; half of it is the 0.25 above.
      present_margin: float, m+.
      absent_margin: float, m-.
      present_weight: float or tensor [O], a further factor of the terms with T.
    """
    labels, logits = float32(labels, logits)
    present = present_weight * ops.square(ops.relu(present_margin - logits))
    absent = ops.square(ops.relu(logits - absent_margin))
    cost = labels * present + absent_weight * (1.0 - labels) * absent
    return 0.5 * ops.mean(cost, axis=-1)


@registered
def softmax_loss(labels: Tensor, logits: Tensor) -> Tensor:
    """Softmax cross-entropy: -sum over classes of labels * log softmax(logits).

    With k labels its gradient is k * softmax(logits) - labels. The reference
    has the gradient softmax(logits) - labels, as if labels summed to 1.
    """
    labels, logits = float32(labels, logits)
    return -ops.sum(labels * ops.log_softmax(logits, axis=-1), axis=-1)


@registered
def sigmoid_loss(labels: Tensor, logits: Tensor) -> Tensor:
    """Mean over classes of the sigmoid cross-entropy for targets `labels / 2`.

    The reference halves the targets because two digits share a probability of
    1. It also halves them for images of one digit.
    """
    labels, logits = float32(labels, logits)
    # log(1 + exp(l)) - T * l; softplus does not overflow.
    cost = ops.softplus(logits) - 0.5 * labels * logits
    return ops.mean(cost, axis=-1)


@registered
def reconstruction_loss(
    images: Tensor,
    reconstructions: Tensor,
    weight: float = RECONSTRUCTION_WEIGHT,
) -> Tensor:
    """Sum of the squared differences of all pixels, times `weight`.

    The default weight is the paper's. As `margin_loss` is the paper's loss
    divided by 2 * O, it acts like 0.01 in the paper for 10 classes, as in the
    reference. Pixels are in [0, 1]. Other shapes [B, ...] raise ValueError.
    """
    require_shape("reconstructions", reconstructions, images.shape)
    error = ops.cast(reconstructions, "float32") - ops.cast(images, "float32")
    squared = ops.square(error)
    pixels = tuple(range(1, len(squared.shape)))
    return weight * ops.sum(squared, axis=pixels)


# By the hyper-parameter `loss_type`.
CLASSIFICATION_LOSSES = {
    "margin": margin_loss,
    "softmax": softmax_loss,
    "sigmoid": sigmoid_loss,
}


class MeanOverBatch(keras.losses.Loss):
    """Mean of `y_pred` [B] over the global batch; `y_true` is ignored."""

    def call(self, y_true: Tensor, y_pred: Any) -> Tensor:
        return y_pred


def _num_hits(labels, logits, num_targets):
    """How many labels are predicted and how many should be: float32 [B]."""
    labels, logits = float32(labels, logits)
    if num_targets == 0:
        predicted = ops.cast(logits > 0.5, "float32")
        needed = ops.sum(ops.maximum(labels, predicted), axis=-1)
    else:
        # Unlike top_k, a stable sort resolves ties equally on all backends.
        order = ops.argsort(-logits, axis=-1)[..., :num_targets]
        one_hot = ops.one_hot(order, logits.shape[-1], dtype="float32")
        predicted, needed = ops.sum(one_hot, axis=-2), num_targets
    hits = ops.sum(predicted * labels, axis=-1)
    return ops.where(ops.all(ops.isfinite(logits), -1), hits, -1.0), needed


@registered
def correct(labels: Tensor, logits: Tensor, num_targets: int = 1) -> Tensor:
    """1 where the predicted classes are exactly the labels, else 0.

    The predicted classes are the `num_targets` with the largest logits; ties go
    to the lower class index. If `num_targets` is 0, they are all classes with
    logits above 0.5. The result is 0 if any logit is infinite or NaN.
    """
    hits, needed = _num_hits(labels, logits, num_targets)
    return ops.cast(hits > needed - 0.5, "float32")


@registered
def almost_correct(
    labels: Tensor, logits: Tensor, num_targets: int = 1
) -> Tensor:
    """1 where any predicted class (see `correct`) is a label, else 0."""
    hits, _ = _num_hits(labels, logits, num_targets)
    return ops.cast(hits > 0.5, "float32")
