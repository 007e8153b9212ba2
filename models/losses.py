"""Losses of single models, see `table.Model`; `options`: of `margin_loss`."""

import math

from keras import ops

import layers


def cross_entropy(labels, scores, step, hparams):
    """The cross-entropy; the scores are probabilities."""
    # The bound keeps the loss finite where probabilities underflow.
    logarithms = ops.log(ops.maximum(scores, 1e-30))
    return -ops.sum(labels * logarithms, axis=-1)


def su_margins(labels, scores, step, hparams, **options):
    """J. Su's loss: twice the margin loss with 0.25 in place of 0.5."""
    return 2.0 * layers.margin_loss(labels, scores, 0.25, **options)


def summed_margins(labels, scores, step, hparams, **options):
    """The margin loss, equation 4 of Sabour et al. 2017, a sum over classes.

    sum_k T_k max(0, 0.9 - |v_k|)^2 + 0.5 (1 - T_k) max(0, |v_k| - 0.1)^2
    """
    return 2 * labels.shape[-1] * layers.margin_loss(labels, scores, **options)


def deepcaps_margins(labels, scores, step, hparams, **options):
    """`summed_margins`, optionally with hard margins."""
    # The weight of absent classes, m+ and m- of the margin loss.
    margins = (0.8, 0.95, 0.05) if hparams.hard_margins else (0.5, 0.9, 0.1)
    loss = layers.margin_loss(labels, scores, *margins, **options)
    return 2.0 * labels.shape[-1] * loss


def mean_squared_error(images, reconstructions, weight):
    """`weight` * mean squared error of a pixel."""
    loss = layers.reconstruction_loss(images, reconstructions, weight)
    return loss / math.prod(images.shape[1:])


def squared_error_like_mnist(images, reconstructions, weight):
    """784 * `weight` * mean squared error of a pixel."""
    scale = 28 * 28 / math.prod(images.shape[1:])
    return scale * layers.reconstruction_loss(images, reconstructions, weight)
