"""Pictures of what a network gets right and wrong, as PNG files."""

import dataclasses
import textwrap

import matplotlib
import numpy as np
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure

from evaluation.counts import (
    predicted_classes,
    wrong_examples,
)
from input_data import features as keys
from training.config import EVAL_BATCH_SIZE
from visualisation.drawing import (
    SCREEN_DPI,
    STYLE,
    png,
    shortened,
    to_rgb,
)

# With more classes the counts of a confusion matrix could not be read.
MAX_CLASSES = 100
_NUM_MISTAKES = 25
_CELL_INCHES = 0.34
_LARGEST_FONT = 11
# Size of a font of which one character fits in a cell.
_CELL_POINTS = 33
# White text on cells that are darker than this share of a row.
_DARK_SHARE = 0.2
# Rare mistakes are seen beside many right predictions.
_POWER = 0.4
_COLUMNS = 5
_IMAGE_INCHES = 1.4
_TEXT_INCHES = 0.45
# What fits above an image.
_CHARACTERS = 21


def draw(predictions, step):
    """Draws an evaluation.

    Args:
      predictions: `Predictions`.
      step: int, of the checkpoint, for the titles.

    Returns:
      Dict from name to the bytes of a PNG file: confusion_matrix, unless
      there are more than `MAX_CLASSES` classes, and wrong_predictions, unless
      all are right.
    """
    labels, logits = predictions.labels, predictions.logits
    pipeline = predictions.pipeline
    wrong = wrong_examples(labels, logits, pipeline.spec.num_targets)
    pictures = {
        "confusion_matrix": confusion_matrix_of(predictions, f"Step {step}")
    }
    mistakes = first_mistakes(pipeline, labels, logits, wrong[:_NUM_MISTAKES])
    if mistakes:
        title = f"Step {step}: first {len(mistakes)} of {len(wrong)} wrong"
        names = [shortened(name) for name in pipeline.spec.names]
        pictures["wrong_predictions"] = wrong_predictions_png(
            mistakes, names, title
        )
    return {name: png for name, png in pictures.items() if png is not None}


def confusion_matrix_of(predictions, title):
    """The confusion matrix as a PNG file; None if there are too many classes.

    Args:
      predictions: `Predictions`.
      title: string, to stand before the number of wrong ones.
    """
    names = [shortened(name) for name in predictions.pipeline.spec.names]
    if len(names) > MAX_CLASSES:
        return None
    score = predictions.score
    title = f"{title}: {score.wrong} of {score.num_examples} wrong"
    return confusion_matrix_png(predictions.confusion_matrix, names, title)


def confusion_matrix_png(matrix, names, title):
    """A confusion matrix with its counts; cells without any stay empty.

    Colours are shares of a row: of the labels of a class.

    Args:
      matrix: float array [classes, classes], rows are labels; at most
        `MAX_CLASSES` classes.
      names: list of strings, short ones.
      title: string.

    Returns:
      The bytes of a PNG file.
    """
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    inches = 1 + _CELL_INCHES * len(names)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(inches, inches), layout="constrained")
        axes = figure.add_subplot()
        axes.imshow(shares, cmap="Blues", norm=PowerNorm(_POWER, 0, 1))
        places = range(len(names))
        is_long = max(map(len, names)) > 3
        axes.set_xticks(places, names, rotation=90 if is_long else 0)
        axes.set_yticks(places, names)
        axes.set_xlabel("predicted class")
        axes.set_ylabel("true class")
        axes.set_title(title)
        counts = {
            (row, column): f"{matrix[row, column]:.5g}"
            for row, column in np.argwhere(matrix)
        }
        longest = max(map(len, counts.values()), default=1)
        for (row, column), count in counts.items():
            is_dark = shares[row, column] > _DARK_SHARE
            axes.text(
                column,
                row,
                count,
                color="white" if is_dark else "black",
                fontsize=min(_LARGEST_FONT, _CELL_POINTS / longest),
                horizontalalignment="center",
                verticalalignment="center",
            )
        return png(figure, SCREEN_DPI)


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


def first_mistakes(pipeline, labels, logits, numbers):
    """The images with some ascending numbers, and what was predicted.

    Reads the images once more, so that nobody has to keep them all. Labels
    and logits are as in `Predictions`.

    Returns:
      List of `Mistake`.
    """
    if not len(numbers):
        return []
    mistakes, start = [], 0
    for x, _ in pipeline.evaluation_batches(EVAL_BATCH_SIZE, numbers[-1] + 1):
        images = x[keys.IMAGES]
        for number in numbers:
            if not start <= number < start + len(images):
                continue
            classes = predicted_classes(
                logits[number], pipeline.spec.num_targets
            )
            mistakes.append(
                Mistake(
                    image=images[number - start].copy(),
                    labels=np.flatnonzero(labels[number]).tolist(),
                    predictions=classes.tolist(),
                    values=logits[number][classes].tolist(),
                )
            )
        start += len(images)
    return mistakes


def wrong_predictions_png(mistakes, names, title):
    """Images with their true and predicted classes, and the latters' lengths.

    Args:
      mistakes: list of `Mistake`, one or more.
      names: list of strings, short ones.
      title: string.

    Returns:
      The bytes of a PNG file.
    """
    images = [to_rgb(mistake.image) for mistake in mistakes]
    height, width, _ = images[0].shape
    columns = min(_COLUMNS, len(mistakes))
    rows = -(-len(mistakes) // columns)
    row_inches = _TEXT_INCHES + _IMAGE_INCHES * height / width
    with matplotlib.rc_context(STYLE):
        figure = Figure(
            figsize=(_IMAGE_INCHES * columns, row_inches * rows),
            layout="constrained",
        )
        figure.suptitle(title)
        grid = figure.subplots(rows, columns, squeeze=False).ravel()
        for axes in grid:
            axes.set_axis_off()
        for axes, image, mistake in zip(grid, images, mistakes, strict=False):
            axes.imshow(image, interpolation="nearest")
            axes.set_title(_verdict(mistake, names), fontsize="medium")
        return png(figure, SCREEN_DPI)


def _verdict(mistake, names):
    predictions = [
        f"{names[label]} ({value:.2f})"
        for label, value in zip(
            mistake.predictions, mistake.values, strict=True
        )
    ]
    true = [names[label] for label in mistake.labels]
    return "\n".join(
        textwrap.fill(f"{what} {' and '.join(classes)}", _CHARACTERS)
        for what, classes in (("true", true), ("predicted", predictions))
    )
