"""Losses of the reference, one value for each example, in float32.

Each loss takes (labels, logits) or (images, reconstructions) and returns
a float32 tensor [B]; the training loss is its mean over the batch. `logits`
are capsule lengths for capsule models and the raw outputs of the baseline.
Labels of another shape raise ValueError.
"""

import keras
from keras import ops

from .utils import Tensor

# The paper's section 3: m+ = 0.9, m- = 0.1, lambda = 0.5.
PRESENT_MARGIN = 0.9
ABSENT_MARGIN = 0.1
ABSENT_WEIGHT = 0.5
# The paper's section 4.1.
RECONSTRUCTION_WEIGHT = 0.0005


# A saved model that was compiled with one of them finds it by its name.
_registered = keras.saving.register_keras_serializable(package="capsules")


def _float32(*tensors):
    return (ops.cast(tensor, "float32") for tensor in tensors)


def _labelled(labels, logits):
    """Both in float32, or ValueError for labels that would be broadcast."""
    labels, logits = _float32(labels, logits)
    known = zip(labels.shape, logits.shape, strict=False)
    if len(labels.shape) != len(logits.shape) or any(
        None not in sizes and sizes[0] != sizes[1] for sizes in known
    ):
        raise ValueError(
            "labels must be one-hot, of the shape of the logits, "
            f"{tuple(logits.shape)}: keras.utils.to_categorical makes such. "
            f"Received: {tuple(labels.shape)}"
        )
    return labels, logits


@_registered
def margin_loss(
    labels: Tensor, logits: Tensor, absent_weight: float = ABSENT_WEIGHT
) -> Tensor:
    """Margin loss: the paper's equation 4, scaled as in the reference.

    Per class 0.5 * T * max(0, 0.9 - l)^2 + 0.25 * (1 - T) * max(0, l - 0.1)^2,
    then the mean over the classes. The paper has no leading 0.5 and sums over
    the classes.

    Args:
      labels: tensor [B, O], 1 for each class that is present, else 0.
      logits: tensor [B, O].
      absent_weight: float, the paper's lambda; half of it is the 0.25 above.

    Returns:
      float32 tensor [B].
    """
    labels, logits = _labelled(labels, logits)
    present = ops.square(ops.relu(PRESENT_MARGIN - logits))
    absent = ops.square(ops.relu(logits - ABSENT_MARGIN))
    cost = labels * present + absent_weight * (1.0 - labels) * absent
    return 0.5 * ops.mean(cost, axis=-1)


@_registered
def softmax_loss(labels: Tensor, logits: Tensor) -> Tensor:
    """Cross-entropy of softmax(logits) with the label vector.

    With several labels it is the sum of their cross-entropies, as in the
    reference: -sum over the classes of labels * log softmax(logits). Its
    gradient, k * softmax(logits) - labels for k of them, is that of this value;
    TensorFlow's operation, which the reference calls, gives softmax(logits) -
    labels whatever k, which is another for two.

    Args:
      labels: tensor [B, O], k-hot.
      logits: tensor [B, O].

    Returns:
      float32 tensor [B].
    """
    labels, logits = _labelled(labels, logits)
    return -ops.sum(labels * ops.log_softmax(logits, axis=-1), axis=-1)


@_registered
def sigmoid_loss(labels: Tensor, logits: Tensor) -> Tensor:
    """Cross-entropy of sigmoid(logits) with labels / 2, mean over classes.

    The targets are halved as in the reference, where two digits share the
    probability; it does so with one digit too.

    Args:
      labels: tensor [B, O], k-hot.
      logits: tensor [B, O].

    Returns:
      float32 tensor [B].
    """
    labels, logits = _labelled(labels, logits)
    # log(1 + exp(l)) - T * l, in the form that does not overflow.
    cost = ops.softplus(logits) - 0.5 * labels * logits
    return ops.mean(cost, axis=-1)


@_registered
def reconstruction_loss(
    images: Tensor,
    reconstructions: Tensor,
    weight: float = RECONSTRUCTION_WEIGHT,
) -> Tensor:
    """A weight times the sum over the pixels of the squared difference.

    `margin_loss` is 1 / (2 * O) of the paper's, so that beside it the paper's
    0.0005 weighs as 0.01 would there, with 10 classes; so it does in the
    reference.

    Args:
      images: tensor [B, ...], pixels in [0, 1].
      reconstructions: tensor of the same shape.
      weight: float.

    Returns:
      float32 tensor [B].
    """
    images, reconstructions = _float32(images, reconstructions)
    squared = ops.square(reconstructions - images)
    pixels = tuple(range(1, len(squared.shape)))
    return weight * ops.sum(squared, axis=pixels)


@_registered
def spread_loss(
    labels: Tensor, activations: Tensor, margin: Tensor | float = 0.9
) -> Tensor:
    """Spread loss of matrix capsules.

    sum over the absent classes c of max(0, margin - (a_present - a_c))^2, with
    several labels summed over those that are present too. Source: G. Hinton,
    S. Sabour, N. Frosst, "Matrix capsules with EM routing", ICLR 2018, section
    3.1.

    Args:
      labels: tensor [B, O], k-hot.
      activations: tensor [B, O], in [0, 1].
      margin: float, or tensor [B]; `spread_margin` gives one that grows, in
        the paper to this.

    Returns:
      float32 tensor [B].
    """
    labels, activations = _labelled(labels, activations)
    margin = ops.reshape(ops.cast(margin, "float32"), (-1, 1, 1))
    # [B, present, absent]
    lead = activations[:, :, None] - activations[:, None, :]
    pairs = labels[:, :, None] * (1.0 - labels[:, None, :])
    return ops.sum(pairs * ops.square(ops.relu(margin - lead)), axis=(1, 2))


def _linear_margin(progress):
    """From 0.2 to 0.9, as the paper says."""
    return 0.2 + 0.7 * ops.minimum(progress, 1.0)


def _sigmoid_margin(progress):
    """The authors' code, in which 1 is step 700,000: 0.21 to 0.99."""
    return 0.2 + 0.79 * ops.sigmoid(14.0 * ops.minimum(progress, 1.0) - 4.0)


# From the share of `margin_steps` to the margin.
MARGIN_SCHEDULES = {"linear": _linear_margin, "sigmoid": _sigmoid_margin}


def spread_margin(
    step: Tensor | None, margin_steps: int, schedule: str = "linear"
) -> Tensor:
    """The margin of the spread loss at a step of the training.

    Args:
      step: int tensor [B], the steps before this one; None outside of training,
        for the margin at the end.
      margin_steps: int, after how many steps the margin is at its end.
      schedule: string, a key of `MARGIN_SCHEDULES`.

    Returns:
      float32 tensor of the shape of `step`, or [] for None.

    Raises:
      ValueError: if `margin_steps` is less than 1, or of an unknown schedule.
    """
    if margin_steps < 1:
        raise ValueError(
            f"margin_steps must be at least 1. Received: {margin_steps!r}"
        )
    if schedule not in MARGIN_SCHEDULES:
        raise ValueError(
            f"schedule must be one of {tuple(MARGIN_SCHEDULES)}. "
            f"Received: {schedule!r}"
        )
    if step is None:
        step = margin_steps
    progress = ops.cast(step, "float32") / margin_steps
    return MARGIN_SCHEDULES[schedule](progress)


# `loss_type` of the hyper-parameters.
CLASSIFICATION_LOSSES = {
    "margin": margin_loss,
    "softmax": softmax_loss,
    "sigmoid": sigmoid_loss,
}


class MeanOverBatch(keras.losses.Loss):
    """The mean of values [B] over the whole batch, all replicas together.

    `keras.losses.Loss` knows how to divide when the batch is split over
    several devices. Call arguments: the values, twice.
    """

    def call(self, y_true, y_pred):
        return y_pred


# Metrics. The prediction is the set of the `num_targets` classes with the
# largest logits, ties to the lower class index. Logits that are not all finite
# predict nothing.


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


@_registered
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


@_registered
def almost_correct(
    labels: Tensor, logits: Tensor, num_targets: int = 1
) -> Tensor:
    """1 where at least one predicted class is a label, else 0.

    Args and returns: as `correct`.
    """
    hits = _num_hits(labels, logits, num_targets)
    return ops.cast(hits > 0.5, "float32")
