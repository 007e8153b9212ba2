"""Figures of an evaluation: a network's errors and learning curve."""

import numpy as np
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure

from common.files import complete_rows
from visualization import drawing

MAX_CLASSES = 100  # counts of more would be too small to read
_CELL_INCHES = 0.34
_LONGEST_COUNT = 3  # characters that fit in a cell
_NUM_IMAGES = 25
_COLUMNS = 5


@drawing.styled
def confusion_matrix_png(matrix, names, title):
    """A PNG file of a confusion matrix; None for over `MAX_CLASSES` classes.

    Rows of the matrix, float [classes, classes], are labels. The color of a
    cell shows the cell's share of the row's sum.
    """
    if len(names) > MAX_CLASSES:
        return None
    names = [drawing.truncate(name) for name in names]
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    inches = 1 + _CELL_INCHES * len(names)
    # Large figures of many classes take long at a higher resolution.
    figure = Figure(figsize=(inches, inches), dpi=120, layout="constrained")
    axes = figure.subplots()
    # Few errors remain visible beside many right predictions.
    axes.imshow(shares, cmap="Blues", norm=PowerNorm(0.4, 0, 1))
    is_long = max(map(len, names)) > _LONGEST_COUNT
    axes.set_xticks(range(len(names)), names, rotation=90 * is_long)
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="predicted class", ylabel="true class", title=title)
    center = {"ha": "center", "va": "center"}
    for row, column in np.argwhere(matrix):
        count = f"{matrix[row, column]:.5g}"
        color = "white" if shares[row, column] > 0.2 else "black"
        size = 9 * min(1, _LONGEST_COUNT / len(count))
        axes.text(column, row, count, color=color, fontsize=size, **center)
    return drawing.png(figure)


def wrong_predictions_png(predictions, title):
    """A PNG file of the first wrong predictions; None if there are none."""
    wrong = predictions.wrong
    if not len(wrong):
        return None
    shown = wrong[:_NUM_IMAGES]
    images = predictions.pipeline.evaluation_images(shown)
    title = f"{title}: first {len(shown)} of {len(wrong)} wrong"
    titles = [verdict(predictions, number) for number in shown]
    return drawing.image_grid(images, min(_COLUMNS, len(shown)), title, titles)


def verdict(predictions, number):
    """Text: an example's true classes, and predicted classes with logits."""
    names = [drawing.truncate(name) for name in predictions.pipeline.spec.names]
    logits = predictions.logits[number]
    true = np.flatnonzero(predictions.labels[number])
    order = np.argsort(-logits, kind="stable")
    predicted = "\nand ".join(
        f"{names[c]} ({logits[c]:.2f})"
        for c in order[predictions.predicted[number][order]]
    )
    labels = " and ".join(names[c] for c in true)
    return f"true {labels or 'none'}\npredicted {predicted or 'none'}"


@drawing.styled
def learning_curve_png(summary_dir, best_step=None):
    """A PNG file of loss and accuracy by step, from summary_dir/*/curve.csv.

    A vertical line marks the step of the best checkpoint, if there is one.
    """
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    figure.suptitle(summary_dir.resolve().name)
    both = figure.subplots(1, 2)
    for path in sorted(summary_dir.glob("*/curve.csv")):
        part = path.parent.name
        rows = complete_rows(path, int, float, float)
        if not rows:
            continue
        steps, *values = np.genfromtxt(rows, delimiter=",", ndmin=2).T
        for axes, numbers in zip(both, values, strict=True):
            marker = "" if part == "train" else "o"
            axes.plot(steps, numbers, marker=marker, ms=3, label=part)
    places = {"loss": "upper right", "accuracy": "lower right"}
    for axes, (name, place) in zip(both, places.items(), strict=True):
        axes.set(title=name, xlabel="step")
        axes.grid(alpha=0.3)
        if best_step is not None:
            axes.axvline(best_step, color="gray", ls="--", label="best")
        if axes.lines:
            axes.legend(loc=place)
    drawing.make_logarithmic(both[0].yaxis)
    return drawing.png(figure)
