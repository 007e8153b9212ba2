"""Averages the activations of several crops of each image."""

import itertools

import numpy as np


def mean_of_crops(activations, pipeline, predict):
    """Mean activations over the central crop and 12 others.

    As in Hinton, Sabour, Frosst 2018, section 5. `predict(pipeline)` returns
    labels, activations [N, classes] and losses.
    """
    shifts = [*itertools.product((1, 2, 3), (-1, 1), (-1, 1))]
    total = _normalized(activations)
    for pixels, down, right in shifts:
        moved = pipeline.moved((down * pixels, right * pixels))
        total += _normalized(predict(moved)[1])
    return total / (1 + len(shifts))


def _normalized(activations):
    sums = activations.sum(axis=-1, keepdims=True)
    return activations / np.maximum(sums, np.finfo("float32").tiny)
