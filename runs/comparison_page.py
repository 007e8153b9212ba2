"""The table and the pictures of a comparison, made from its JSON file."""

import statistics

import numpy as np

from runs.table import error_curve, markdown, plot_errors
from visualisation.drawing import make_logarithmic


def table(models):
    """The table of a comparison in Markdown, for a terminal too.

    Args:
      models: dict from name to the model's entry in comparison.json.
    """
    rows = [_row(name, model) for name, model in models.items()]
    return markdown(list(rows[0]), [row.values() for row in rows], padded=True)


def _row(name, model):
    """A row: medians of speeds, the largest memory, the mean error."""
    runs = list(model["runs"].values())
    network = runs[0]["network"]
    errors = [error_curve(run)[-1] for run in runs]
    peaks = [run["peak_megabytes"] for run in runs if run["peak_megabytes"]]

    def median(key):
        return statistics.median(run[key] for run in runs)

    return {
        "model": name,
        "weights": network["weights"],
        "without decoder": network["weights_without_decoder"],
        "multiply-adds": network["multiply_adds"],
        "steps": runs[0]["points"][-1]["step"],
        "training minutes": median("training_seconds") / 60,
        "training images/s": median("training_images_per_second"),
        "inference images/s": median("inference_images_per_second"),
        "peak MB": max(peaks, default=None),
        "error %": statistics.mean(errors),
        "+-": statistics.stdev(errors) if len(errors) > 1 else None,
        "seeds": len(runs),
    }


def pictures(models, title, kind="test"):
    """Dict of two PNG files: error by weights, and by training time."""

    def draw_by_weights(axes):
        for name, model in models.items():
            row = _row(name, model)
            weights, error = row["without decoder"], row["error %"]
            style = {"fmt": "o", "capsize": 3, "label": name}
            axes.errorbar(weights, error, yerr=row["+-"], **style)
        make_logarithmic(axes.xaxis)

    def draw_by_time(axes):
        for name, model in models.items():
            runs = model["runs"].values()
            errors = np.array([error_curve(run) for run in runs])
            seconds = [[p["seconds"] for p in run["points"]] for run in runs]
            minutes = np.mean(seconds, axis=0) / 60
            (line,) = axes.plot(minutes, errors.mean(0), "o-", label=name)
            spread = errors.min(0), errors.max(0)
            color = line.get_color()
            axes.fill_between(minutes, *spread, color=color, alpha=0.2)

    plots = {
        "error_by_weights.png": (draw_by_weights, "weights without decoder"),
        "error_by_time.png": (draw_by_time, "minutes of training"),
    }
    return {
        name: plot_errors(draw, title, xlabel, f"{kind} error in %")
        for name, (draw, xlabel) in plots.items()
    }
