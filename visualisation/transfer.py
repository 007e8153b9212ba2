"""Models that were trained on one object, tested on two: what they see."""

import math
import statistics

import matplotlib
from matplotlib.figure import Figure

from visualisation.drawing import (
    GAP,
    STYLE,
    WRONG_COLOUR,
    mosaic,
    png,
    to_rgb,
)

# What is drawn of a run, and what it is a share of.
MEASURES = {
    "one object": ("single", "correct"),
    "both of two": ("pairs", "correct"),
    "both, and above 0.5": ("pairs", "confident"),
}
# 97.5% points of Student's t by degrees of freedom, from 1.
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
_NORMAL = 1.960
_COLOURS = ("#9a9a9a", "#1f6f8b", "#99c1d0")
_CELL_INCHES = 0.8
_LINE_INCHES = 0.28


def confidence_interval(shares, total):
    """The mean share over runs, and where it is with 95% confidence.

    Args:
      shares: list of floats, one for each run of a model.
      total: int, what they are shares of.

    Returns:
      Tuple of mean, lower and upper end. Of several runs the ends are those
      of Student's t for their mean, as runs differ by more than chance in the
      images; of one run those of Wilson's interval for its share.
    """
    runs = len(shares)
    mean = statistics.mean(shares)
    if runs == 1:
        z = _NORMAL**2 / total
        centre = (mean + z / 2) / (1 + z)
        half = math.sqrt(z * mean * (1 - mean) + z**2 / 4) / (1 + z)
    else:
        centre = mean
        half = _t(runs - 1) * statistics.stdev(shares) / math.sqrt(runs)
    # Rounding must not put the mean outside.
    low, high = max(0.0, centre - half), min(1.0, centre + half)
    return mean, min(low, mean), max(high, mean)


def _t(degrees):
    if degrees <= len(_T):
        return _T[degrees - 1]
    # Its expansion in 1 / degrees.
    return _NORMAL + 2.372 / degrees + 2.82 / degrees**2 + 2.6 / degrees**3


def make(results, images):
    """Both figures of the experiment.

    Args:
      results: dict, as `evaluation.transfer.measure` gives it.
      images: float32 [N, H, W, C], of the examples.

    Returns:
      Dict from file name to the bytes of a PNG file.

    Raises:
      UserError: if so many images do not fit in a picture.
    """
    return {
        "transfer_accuracy.png": accuracy_png(results),
        "transfer_pairs.png": pairs_png(results, images),
    }


def shares(results):
    """By model and measure what `confidence_interval` gives, and the runs.

    Returns:
      Dict from model to dict from measure to a pair of that tuple and the list
      of each run's share.
    """
    return {
        name: {
            measure: _of_runs([run[kind] for run in runs], count)
            for measure, (kind, count) in MEASURES.items()
        }
        for name, runs in results["runs"].items()
    }


def _of_runs(found, count):
    total = found[0]["num_examples"]
    shares = [run[count] / run["num_examples"] for run in found]
    return confidence_interval(shares, total), shares


def accuracy_png(results):
    """Bars of each model's accuracies, with intervals and each run's dot."""
    by_model = shares(results)
    width = 0.8 / len(MEASURES)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(1.5 + 1.5 * len(by_model), 3.0))
        axes = figure.add_subplot()
        for place, (measure, colour) in enumerate(
            zip(MEASURES, _COLOURS, strict=True)
        ):
            for number, of_model in enumerate(by_model.values()):
                (mean, low, high), runs = of_model[measure]
                x = number + (place - 1) * width
                axes.bar(
                    x,
                    100 * mean,
                    width,
                    color=colour,
                    label=measure if number == 0 else None,
                )
                axes.errorbar(
                    x,
                    100 * mean,
                    [[100 * (mean - low)], [100 * (high - mean)]],
                    color="black",
                    capsize=3,
                    linewidth=1,
                )
                axes.plot([x] * len(runs), [100 * r for r in runs], "k.", ms=3)
                axes.text(x, 100 * high + 1, f"{100 * mean:.1f}", ha="center")
        axes.set_xticks(range(len(by_model)), by_model)
        axes.set_ylim(0, 112)
        axes.set_yticks(range(0, 101, 20))
        axes.set_ylabel("right, %")
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_title(_title(results), pad=24)
        axes.legend(
            loc="lower center",
            bbox_to_anchor=(0.5, 1.0),
            ncols=len(MEASURES),
            frameon=False,
        )
        return png(figure)


def pairs_png(results, images):
    """The first pairs, and what each model predicts, wrong ones in red."""
    examples = results["examples"]
    canvas = mosaic([[to_rgb(image) for image in images]])
    height, width, _ = canvas.shape
    step = (width + GAP) / len(images)
    inches_per_pixel = _CELL_INCHES / step
    # Of the text, in the pixels of the images.
    line = _LINE_INCHES / inches_per_pixel
    with matplotlib.rc_context(STYLE):
        figure = Figure(
            figsize=(width * inches_per_pixel, height * inches_per_pixel)
        )
        axes = figure.add_axes((0, 0, 1, 1))
        axes.imshow(canvas, interpolation="nearest")
        axes.set_axis_off()
        axes.set_title(_title(results), pad=8)
        for row, name in enumerate(["true", *results["runs"]]):
            y = height + (row + 0.7) * line
            axes.text(-3 * GAP, y, name, ha="right", va="center")
            for column, example in enumerate(examples):
                labels = example["labels"]
                if row == 0:
                    text, is_right = _classes(labels), True
                else:
                    # In the order in which `_classes` names them.
                    found = sorted(example["predictions"][name])
                    classes = [c for c, _ in found]
                    is_right = set(classes) == set(labels)
                    values = " ".join(f"{value:.2f}" for _, value in found)
                    text = f"{_classes(classes)}\n{values}"
                axes.text(
                    (column + 0.5) * step - GAP / 2,
                    y,
                    text,
                    ha="center",
                    va="center",
                    fontsize=6.5,
                    color="black" if is_right else WRONG_COLOUR,
                )
        return png(figure)


def _classes(classes):
    return " and ".join(map(str, sorted(classes)))


def _title(results):
    place = {"below": "below each other", "beside": "beside each other"}
    return (
        f"Trained on one object, tested on two {place[results['pairs']]}: "
        f"{results['dataset']}"
    )
