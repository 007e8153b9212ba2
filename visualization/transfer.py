"""Figures of models trained on one object per image and tested on two."""

import dataclasses
import json

import numpy as np
from matplotlib.figure import Figure
from scipy import stats

from visualization.drawing import image_grid, png, styled
from visualization.evaluation_figures import verdict

# Dict from label of a bar to its images and a count of `training.scores.Score`.
MEASURES = {
    "one object": ("single", "correct"),
    "both of two": ("pairs", "correct"),
    "both, and above 0.5": ("pairs", "confident"),
}


def make(runs, first, pairs, seed, num_examples):
    """Draws accuracies, and predictions for the first `num_examples` pairs.

    `runs` is a dict from a model's name to a list of runs. Each run is a dict
    with the `counts` for "single" images (of one object) and for "pairs".
    `first` is a dict from a model's name to `training.scores.Predictions` of
    pairs by the model's first run. `pairs` is "below" or "beside", `seed` chose
    the pairs. Returns a dict from file name to content.
    """
    one = next(iter(first.values()))
    dataset = one.config.dataset_name
    numbers = range(min(num_examples, len(one.labels)))
    shown = [(run, number) for run in first.values() for number in numbers]
    wrong = [i for i, (run, number) in enumerate(shown) if number in run.wrong]
    title = f"Trained on one object, tested on two ({pairs}): {dataset}"
    images = list(one.pipeline.evaluation_images(numbers))
    texts = [verdict(run, number) for run, number in shown]
    grid = images * len(first), len(images), title, texts
    results = {"dataset": dataset, "pairs": pairs, "seed": seed}
    return {
        "transfer.json": json.dumps(results | {"runs": runs}, indent=1),
        "transfer_accuracy.png": _draw_accuracy(runs, title),
        "transfer_pairs.png": image_grid(*grid, list(first), wrong),
    }


def counts(predictions):
    """The score of `Predictions` as a dict for JSON, without the loss."""
    values = dataclasses.asdict(predictions.score)
    del values["loss"]  # may be NaN, which is not JSON
    return values


def confidence_interval(right, total):
    """Ends of the 95% confidence interval of an accuracy.

    `right` lists the number of correct predictions, out of `total`, of each
    run. For one run, the interval is Wilson's. For several runs, it is
    Student's interval of the mean accuracy: it also covers how runs differ.
    """
    if len(right) == 1:
        return stats.binomtest(*right, total).proportion_ci(method="wilson")
    shares = np.divide(right, total)
    half = stats.t.ppf(0.975, len(right) - 1) * stats.sem(shares)
    return np.clip([shares.mean() - half, shares.mean() + half], 0, 1)


@styled
def _draw_accuracy(runs, title):
    width = 0.8 / len(MEASURES)
    figure = Figure(figsize=(2 + 1.5 * len(runs), 3), layout="constrained")
    axes = figure.subplots()
    for index, (measure, (kind, count)) in enumerate(MEASURES.items()):
        means, ends = [], []
        for of_model in runs.values():
            total = of_model[0][kind]["num_examples"]
            right = [run[kind][count] for run in of_model]
            means.append(100 * np.mean(right) / total)
            ends.append(100 * np.array(confidence_interval(right, total)))
        places = np.arange(len(runs)) + (index - 1) * width
        look = {"label": measure, "alpha": 0.6, "capsize": 3}
        errors = abs(np.transpose(ends) - means)
        bars = axes.bar(places, means, width, yerr=errors, **look)
        axes.bar_label(bars, fmt="%.1f")
    axes.set_xticks(range(len(runs)), runs)
    axes.set_yticks(range(0, 101, 20))
    axes.set(ylim=(0, 110), ylabel="right, %", title=title)
    figure.legend(loc="outside lower center", ncols=len(MEASURES))
    return png(figure)
