"""Models that were trained on one object, tested on two."""

import dataclasses
import json

import numpy as np
from matplotlib.figure import Figure
from scipy import stats

from visualisation.drawing import image_grid, png
from visualisation.evaluation import images_at, verdict

# The bars: images, and a count of `training.scores.Score`.
MEASURES = {
    "one object": ("single", "correct"),
    "both of two": ("pairs", "correct"),
    "both, and above 0.5": ("pairs", "confident"),
}


def make(runs, first, pairs, seed, num_examples):
    """Draws accuracies, and the predictions for the first pairs.

    Args:
      runs: dict from a model's name to a list of its runs, each a dict with
        the `counts` of "single" images and "pairs".
      first: dict from a model's name to the `training.scores.Predictions`
        of its first run for pairs.
      pairs: string, "below" or "beside".
      seed: int, of the pairs.
      num_examples: int, pairs to draw.

    Returns:
      Dict from file name to content.
    """
    one = next(iter(first.values()))
    examples = [
        {"labels": np.flatnonzero(labels).tolist(), "predictions": {}}
        for labels in one.labels[:num_examples]
    ]
    verdicts, wrong = [], []
    for name, run in first.items():
        for number, example in enumerate(examples):
            logits = run.logits[number]
            classes = run.classes[number].tolist()
            example["predictions"][name] = [
                [c, float(logits[c])] for c in classes
            ]
            if sorted(classes) != example["labels"]:
                wrong.append(len(verdicts))
            verdicts.append(verdict(run, number))
    title = f"Trained on one object, tested on two ({pairs}): {one.dataset}"
    images = images_at(one.pipeline, range(len(examples)))
    results = {
        "dataset": one.dataset,
        "pairs": pairs,
        "seed": seed,
        "runs": runs,
        "examples": examples,
    }
    return {
        "transfer.json": json.dumps(results, indent=1),
        "transfer_accuracy.png": _draw_accuracy(runs, title),
        "transfer_pairs.png": image_grid(
            images * len(first),
            len(images),
            title,
            verdicts,
            list(first),
            wrong,
        ),
    }


def counts(predictions):
    """Dict of the counts of a `training.scores.Score`, for JSON."""
    values = dataclasses.asdict(predictions.score)
    del values["loss"]  # may be NaN, which is not JSON
    return values


def confidence_interval(right, total):
    """Ends of the 95% confidence interval of an accuracy.

    `right` are the correct predictions of each run of `total`. Wilson's for
    one run; Student's for the mean of several, as runs differ by more than
    chance in the images.
    """
    if len(right) == 1:
        return stats.binomtest(*right, total).proportion_ci(method="wilson")
    shares = np.divide(right, total)
    half = stats.t.ppf(0.975, len(right) - 1) * stats.sem(shares)
    return np.clip([shares.mean() - half, shares.mean() + half], 0, 1)


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
        bars = axes.bar(
            np.arange(len(runs)) + (index - 1) * width,
            means,
            width,
            yerr=abs(np.transpose(ends) - means),
            capsize=3,
            label=measure,
            alpha=0.6,
        )
        axes.bar_label(bars, fmt="%.1f")
    axes.set_xticks(range(len(runs)), runs)
    axes.set_yticks(range(0, 101, 20))
    axes.set(ylim=(0, 110), ylabel="right, %", title=title)
    figure.legend(loc="outside lower center", ncols=len(MEASURES))
    return png(figure)
