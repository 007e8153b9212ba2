"""What evaluations draw: errors of a network and the learning curve."""

import pathlib

import matplotlib
import numpy as np
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure

from common.errors import reading
from input_data import features as keys
from visualisation.drawing import (
    SCREEN_DPI,
    STYLE,
    image_grid,
    make_logarithmic,
    png,
    truncate,
)
from visualisation.trained_model import BATCH_SIZE, top_classes

# Counts of more classes would be too small to read.
MAX_CLASSES = 100
_CELL_INCHES = 0.34
_LONGEST_COUNT = 3  # characters that fit in a cell
_NUM_IMAGES = 25
_COLUMNS = 5


def confusion_matrix_png(matrix, names, title):
    """A confusion matrix with its counts; None above `MAX_CLASSES` classes.

    Colors are shares of a row.

    Args:
      matrix: float array [classes, classes], rows are labels.
      names: list of strings, the classes.
      title: string.

    Returns:
      The bytes of a PNG file, or None.
    """
    if len(names) > MAX_CLASSES:
        return None
    names = [truncate(name) for name in names]
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    inches = 1 + _CELL_INCHES * len(names)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(inches, inches), layout="constrained")
        axes = figure.subplots()
        # Few errors remain visible beside many right predictions.
        axes.imshow(shares, cmap="Blues", norm=PowerNorm(0.4, 0, 1))
        is_long = max(map(len, names)) > _LONGEST_COUNT
        axes.set_xticks(range(len(names)), names, rotation=90 * is_long)
        axes.set_yticks(range(len(names)), names)
        axes.set(xlabel="predicted class", ylabel="true class", title=title)
        for row, column in np.argwhere(matrix):
            count = f"{matrix[row, column]:.5g}"
            axes.text(
                *(column, row, count),
                color="white" if shares[row, column] > 0.2 else "black",
                fontsize=9 * min(1, _LONGEST_COUNT / len(count)),
                ha="center",
                va="center",
            )
        return png(figure, SCREEN_DPI)


def wrong_predictions_png(predictions, wrong, title):
    """The first wrongly predicted images; None if there are none.

    Args:
      predictions: `training.scores.Predictions`.
      wrong: ascending indices of the wrong examples.
      title: string.

    Returns:
      The bytes of a PNG file, or None.
    """
    if not len(wrong):
        return None
    shown = wrong[:_NUM_IMAGES]
    images = images_at(predictions.pipeline, shown)
    empty = [None] * (-len(images) % min(_COLUMNS, len(images)))
    places = images + empty
    return image_grid(
        [
            places[start : start + _COLUMNS]
            for start in range(0, len(places), _COLUMNS)
        ],
        f"{title}: first {len(shown)} of {len(wrong)} wrong",
        titles=[verdict(predictions, number) for number in shown],
        dpi=SCREEN_DPI,
    )


def images_at(pipeline, numbers):
    """List of the test images [H, W, C] with ascending numbers."""
    images, start = [], 0
    for x, _ in pipeline.evaluation_batches(BATCH_SIZE, numbers[-1] + 1):
        batch = x[keys.IMAGES]
        stop = start + len(batch)
        images += [batch[n - start] for n in numbers if start <= n < stop]
        start = stop
    return images


def verdict(predictions, number):
    """True and predicted classes of an example, with lengths or logits."""
    spec = predictions.pipeline.spec
    logits = predictions.logits[number]
    true = np.flatnonzero(predictions.labels[number])
    predicted = top_classes(logits, spec.num_targets)
    return "\n".join(
        [
            f"true {' and '.join(truncate(spec.names[c]) for c in true)}",
            "predicted "
            + "\nand ".join(
                f"{truncate(spec.names[c])} ({logits[c]:.2f})"
                for c in predicted
            ),
        ]
    )


def learning_curve_png(summary_dir):
    """Loss and accuracy by step, of the training and its evaluations.

    Args:
      summary_dir: path; its folders train, test and validation may have a
        `curve.csv`.

    Returns:
      The bytes of a PNG file.
    """
    summary_dir = pathlib.Path(summary_dir)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8, 3.2), layout="constrained")
        figure.suptitle(summary_dir.resolve().name)
        both = figure.subplots(1, 2)
        for part in ("test", "train", "validation"):
            path = summary_dir / part / "curve.csv"
            if not path.exists():
                continue
            with reading(path):
                lines = path.read_text().splitlines()[1:]
                # A running training may have written half of the last line.
                rows = [line for line in lines if line.count(",") == 2]
                steps, *values = np.genfromtxt(rows, delimiter=",", ndmin=2).T
            for axes, numbers in zip(both, values, strict=True):
                marker = "" if part == "train" else "o"
                axes.plot(steps, numbers, marker=marker, ms=3, label=part)
        for axes, name in zip(both, ("loss", "accuracy"), strict=True):
            axes.set(title=name, xlabel="step")
            axes.grid(alpha=0.3)
            if axes.lines:
                axes.legend()
        make_logarithmic(both[0].yaxis)
        return png(figure, SCREEN_DPI)
