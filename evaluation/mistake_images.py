"""Pictures of what a network gets wrong, as PNG files."""

import textwrap

import matplotlib
import numpy as np
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure

from visualisation.drawing import (
    SCREEN_DPI,
    STYLE,
    png,
    shortened,
    to_rgb,
)

# With more the counts of a confusion matrix could not be read.
MAX_CLASSES = 100
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


def confusion_matrix_png(matrix, class_names, title):
    """A confusion matrix with its counts; cells without any stay empty.

    Colours are shares of a row: of the labels of a class.

    Args:
      matrix: float array [classes, classes], rows are labels; at most
        `MAX_CLASSES` classes.
      class_names: list of strings.
      title: string.

    Returns:
      The bytes of a PNG file.
    """
    names = [shortened(name) for name in class_names]
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


def wrong_predictions_png(mistakes, class_names, title):
    """Images with their true and predicted classes, and the latters' lengths.

    Args:
      mistakes: list of `mistakes.Mistake`, one or more.
      class_names: list of strings.
      title: string.

    Returns:
      The bytes of a PNG file.
    """
    names = [shortened(name) for name in class_names]
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
    labels = [names[label] for label in mistake.labels]
    predictions = [
        f"{names[label]} ({value:.2f})"
        for label, value in zip(
            mistake.predictions, mistake.values, strict=True
        )
    ]
    return "\n".join(
        textwrap.fill(f"{what} {' and '.join(classes)}", _CHARACTERS)
        for what, classes in (("true", labels), ("predicted", predictions))
    )
