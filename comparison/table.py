"""What a comparison found, model by model: rows, a table and two pictures."""

import statistics

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from visualisation.drawing import STYLE, make_logarithmic, png


def rows(models):
    """One dict for each model: what the table shows, by column.

    Numbers that do not depend on the seed are those of the first run, speeds
    are medians over the runs, memory the most of them, and the error has its
    mean and its deviation over the seeds (None of one).

    Args:
      models: dict from name to what comparison.json says of it.
    """
    return [
        _row(name, list(entry["runs"].values()))
        for name, entry in models.items()
    ]


def _row(name, runs):
    network = runs[0]["network"]
    errors = [_percent(run, run["wrong"]) for run in runs]

    def median(key):
        return statistics.median(run[key] for run in runs)

    peaks = [run["peak_megabytes"] for run in runs]
    return {
        "model": name,
        "weights": network["weights"],
        "without decoder": network["weights_without_decoder"],
        "multiply-adds": network["multiply_adds"],
        "steps": runs[0]["points"][-1]["step"],
        "training minutes": median("training_seconds") / 60,
        "training images/s": median("training_images_per_second"),
        "inference images/s": median("inference_images_per_second"),
        "peak MB": max((p for p in peaks if p is not None), default=None),
        "error %": statistics.mean(errors),
        "+-": statistics.stdev(errors) if len(errors) > 1 else None,
        "seeds": len(runs),
    }


def _percent(run, wrong):
    return 100 * wrong / run["examples"]


def as_markdown(found):
    """A table in Markdown, which is also one to read on a terminal.

    Args:
      found: list of dicts of equal keys, as `rows` gives them.

    Returns:
      String of several lines.
    """
    cells = [[_text(value) for value in row.values()] for row in found]
    cells.insert(0, list(found[0]))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        " | ".join(
            text.rjust(width) for text, width in zip(line, widths, strict=True)
        )
        for line in cells
    ]
    rule = " | ".join("-" * (width - 1) + ":" for width in widths)
    lines.insert(1, rule)
    return "\n".join(f"| {line} |" for line in lines)


def _text(value):
    if value is None:
        return "-"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"
    return value


def pictures(models, title, kind="test"):
    """Error against weights, and against training time.

    Args:
      models: dict from name to what comparison.json says of it.
      title: string, data set and budget.
      kind: string, of which errors: test or validation.

    Returns:
      Dict from file name to the bytes of a PNG file.
    """
    return {
        "error_by_weights.png": _by_weights(rows(models), title, kind),
        "error_by_time.png": _by_time(models, title, kind),
    }


def _by_weights(found, title, kind):
    def draw(axes):
        for number, row in enumerate(found):
            axes.errorbar(
                row["without decoder"],
                row["error %"],
                yerr=row["+-"],
                fmt="o",
                capsize=3,
                color=f"C{number}",
                label=row["model"],
            )
        make_logarithmic(axes.xaxis)
        axes.set_xlabel("trainable weights without the decoder")

    return _draw(draw, title, kind)


def _by_time(models, title, kind):
    """Each model's mean curve over its seeds, and the range of the seeds."""

    def draw(axes):
        for number, (name, entry) in enumerate(models.items()):
            runs = list(entry["runs"].values())
            minutes = np.mean([_column(run, "seconds") for run in runs], 0) / 60
            errors = np.array(
                [
                    [_percent(run, wrong) for wrong in _column(run, "wrong")]
                    for run in runs
                ]
            )
            colour = f"C{number}"
            axes.plot(minutes, errors.mean(0), "o-", color=colour, label=name)
            axes.fill_between(
                minutes, errors.min(0), errors.max(0), color=colour, alpha=0.2
            )
        axes.set_xlabel("minutes of training")

    return _draw(draw, title, kind)


def _column(run, key):
    return [point[key] for point in run["points"]]


def _draw(draw, title, kind):
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(6.2, 3.4), layout="constrained")
        axes = figure.subplots()
        draw(axes)
        # Of no errors a logarithm shows nothing.
        if axes.dataLim.y0 > 0:
            make_logarithmic(axes.yaxis)
        else:
            axes.set_ylim(bottom=0)
        figure.legend(loc="outside right upper", frameon=False)
        axes.set_ylabel(f"{kind} error in %")
        axes.set_title(title)
        axes.grid(alpha=0.3)
        return png(figure)
