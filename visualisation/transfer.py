"""Models that were trained on one object, tested on two."""

import dataclasses
import json

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from scipy import stats

from visualisation.drawing import STYLE, image_grid, png
from visualisation.evaluation import images_at, verdict
from visualisation.trained_model import top_classes

# The bars: images, and a count of `training.scores.Score`.
MEASURES = {
    "one object": ("single", "correct"),
    "both of two": ("pairs", "correct"),
    "both, and above 0.5": ("pairs", "confident"),
}


def make(predictions, pairs, seed, num_examples=8):
    """Draws accuracies, and the predictions for the first pairs.

    Args:
      predictions: dict from a model's name to a list of its runs, each a pair
        of a checkpoint and a dict of `training.scores.Predictions` for
        "single" images and "pairs".
      pairs: string, "below" or "beside".
      seed: int, of the pairs.
      num_examples: int, pairs to draw.

    Returns:
      Dict from file name to content.
    """
    runs = {
        name: [
            {"checkpoint": path, **{k: _counts(p) for k, p in run.items()}}
            for path, run in of_model
        ]
        for name, of_model in predictions.items()
    }
    first = {name: of[0][1]["pairs"] for name, of in predictions.items()}
    one = next(iter(first.values()))
    numbers = range(min(num_examples, len(one.labels)))
    labels = [np.flatnonzero(one.labels[n]).tolist() for n in numbers]
    classes = {
        name: top_classes(p.logits[: len(numbers)], 2).tolist()
        for name, p in first.items()
    }
    results = {
        "dataset": one.dataset,
        "pairs": pairs,
        "seed": seed,
        "runs": runs,
        "examples": [
            {
                "labels": labels[n],
                "predictions": {
                    name: [[c, float(p.logits[n, c])] for c in classes[name][n]]
                    for name, p in first.items()
                },
            }
            for n in numbers
        ],
    }
    title = f"Trained on one object, tested on two ({pairs}): {one.dataset}"
    cells = [(name, n) for name in first for n in numbers]
    picture = image_grid(
        [images_at(one.pipeline, numbers)] * len(first),
        title,
        [verdict(first[name], n) for name, n in cells],
        labels=list(first),
        wrong=[
            place
            for place, (name, n) in enumerate(cells)
            if sorted(classes[name][n]) != labels[n]
        ],
    )
    return {
        "transfer.json": json.dumps(results, indent=1),
        "transfer_accuracy.png": _draw_accuracy(runs, title),
        "transfer_pairs.png": picture,
    }


def _counts(predictions):
    counts = dataclasses.asdict(predictions.score)
    del counts["loss"]  # may be NaN, which is not JSON
    return counts


def confidence_interval(counts, total):
    """Ends of the 95% confidence interval of an accuracy.

    Wilson's for the images of one run; Student's for the mean of several, as
    runs differ by more than chance in the images.

    Args:
      counts: list of ints, correct predictions of each run.
      total: int, number of images.
    """
    if len(counts) == 1:
        return stats.binomtest(*counts, total).proportion_ci(method="wilson")
    shares = np.divide(counts, total)
    half = stats.t.ppf(0.975, len(counts) - 1) * stats.sem(shares)
    return np.clip([shares.mean() - half, shares.mean() + half], 0, 1)


def _draw_accuracy(runs, title):
    width = 0.8 / len(MEASURES)
    with matplotlib.rc_context(STYLE):
        size = 2 + 1.5 * len(runs), 3
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots()
        for index, (measure, (kind, count)) in enumerate(MEASURES.items()):
            means, ends = [], []
            for of_model in runs.values():
                total = of_model[0][kind]["num_examples"]
                counts = [run[kind][count] for run in of_model]
                means.append(100 * np.mean(counts) / total)
                ends.append(100 * np.array(confidence_interval(counts, total)))
            x = np.arange(len(runs)) + (index - 1) * width
            axes.bar(x, means, width, label=measure, alpha=0.6)
            for place, mean in zip(x, means, strict=True):
                axes.text(place, 2, f" {mean:.1f}")  # beside the error bar
            axes.errorbar(
                x, means, abs(np.transpose(ends) - means), fmt="k.", capsize=3
            )
        axes.set_xticks(range(len(runs)), runs)
        axes.set(ylim=(0, 100), ylabel="right, %", title=title)
        figure.legend(loc="outside lower center", ncols=len(MEASURES))
        return png(figure)
