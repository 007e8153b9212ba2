"""Tables and pictures of the results in robustness.json."""

import itertools
import statistics

import numpy as np
from matplotlib.colors import TABLEAU_COLORS
from matplotlib.figure import Figure

from runs.pages import markdown, mcnemar_p, table_files
from visualization.drawing import image_grid, png, styled

_COLUMNS = 4  # panels in a row
_UNITS = {
    "shift": "pixels",
    "rotate": "degrees",
    "scale": "factor",
    "shear": "slope",
    "noise": "standard deviation",
    "blur": "standard deviation in pixels",
    "occlude": "side in pixels",
    "iterations": "routing iterations",
}


def table(results):
    """The rows of `summary` as text for terminals."""
    return markdown(*summary(results), padded=True)


def files(results, title):
    """Dict from file name to content: robustness.csv, .tex and .png."""
    tables = table_files("robustness", *summary(results))
    return tables | {"robustness.png": _draw(results, title)}


def summary(results):
    """Column names, and a row for each measure and network.

    McNemar's exact test compares a network with the first one at the middle
    severity. It counts each image once for each trial that both have.
    """
    head = ["test", "network", "trials", "severities"]
    for severity in ("low", "middle", "high"):
        head += [f"{severity} %", f"{severity} +-"]
    rows = []
    for measure, networks in _measures(results).items():
        first = next(iter(networks))
        for name, trials in networks.items():
            three = _three(measure, trials)
            errors = [_mean_and_deviation(trials[s]) for s in three]
            middle = networks[first].get(three[1], {}), trials[three[1]]
            p = None if name == first else _p(*middle)
            count = len(trials[three[1]])
            texts = ", ".join(map(str, three))
            rows.append([measure, name, count, texts, *sum(errors, ()), p])
    return [*head, "McNemar's p"], rows


def _measures(results):
    """Nested dicts: measure, network, severity, checkpoint.

    The values are pairs: the error in percent, and the list of wrong examples
    (None for measures that have no such list).
    """
    found = {}
    for result in results:
        test = result["test"]
        counts = {test: (result["wrong"], result["wrong_examples"])}
        if "by_own_loss" in result:
            counts[f"{test}, own loss"] = result["by_own_loss"], None
        if "undetected" in result:
            aware = result["against_detector"]["undetected"]
            counts["undetected"] = result["undetected"], None
            counts["undetected, detector attacked"] = aware, None
        for measure, (count, examples) in counts.items():
            place = found
            for key in (measure, result["network"], result["severity"]):
                place = place.setdefault(key, {})
            percent = 100 * count / result["num_examples"]
            place[result["checkpoint"]] = percent, examples
    return found


def _three(measure, severities):
    """The lowest, middle and highest severity that changes images."""
    unchanged = 1 if measure == "scale" else 0
    changing = sorted(s for s in severities if s != unchanged)
    some = changing or list(severities)
    return some[0], some[(len(some) - 1) // 2], some[-1]


def _mean_and_deviation(trials):
    errors = [percent for percent, _ in trials.values()]
    deviation = statistics.stdev(errors) if len(errors) > 1 else None
    return statistics.mean(errors), deviation


def _p(first, other):
    """McNemar's p of two networks; their trials are paired by their order."""
    pairs = list(zip(first.values(), other.values(), strict=False))
    if not pairs or pairs[0][0][1] is None:
        return None
    a, b = (
        {(n, i) for n, pair in enumerate(pairs) for i in pair[which][1]}
        for which in (0, 1)
    )
    return mcnemar_p(len(a - b), len(b - a))


@styled
def _draw(results, title):
    """A picture with a panel for each measure: error by severity."""
    measures, lines = _measures(results), {}
    columns = min(_COLUMNS, len(measures))
    rows = -(-len(measures) // columns)
    figure = Figure((2.6 * columns, 2.2 * rows + 0.8), layout="constrained")
    figure.suptitle(title)
    panels = figure.subplots(rows, columns, squeeze=False).flat
    colors = dict.fromkeys(result["network"] for result in results)
    colors = dict(zip(colors, itertools.cycle(TABLEAU_COLORS), strict=False))
    for measure, axes in zip(measures, panels, strict=False):
        for name, trials in measures[measure].items():
            severities = sorted(trials)
            pairs = [_mean_and_deviation(trials[s]) for s in severities]
            mean, spread = np.array(pairs, float).T
            color = colors[name]
            (lines[name],) = axes.plot(severities, mean, ".-", color=color)
            ends = mean - spread, mean + spread  # NaN draws nothing
            axes.fill_between(severities, *ends, color=color, alpha=0.2)
        unit = _UNITS.get(measure, "eps")
        axes.set(title=measure, xlabel=unit, ylabel="images, %", ylim=(0, 102))
        axes.grid(alpha=0.3)
    for axes in list(panels):
        axes.set_visible(False)
    place = {"loc": "outside lower center", "ncols": columns}
    figure.legend(lines.values(), lines, **place)
    return png(figure)


def attacked_png(examples, title):
    """A picture of images, attacked images and reconstructions.

    `examples` is a dict from a network's name to images and texts as of
    `Examiner.examples`.
    """
    images, titles, labels = [], [], []
    for name, (rows, texts) in examples.items():
        for row in rows:
            images += list(rows[row])
            titles += texts if row == "attacked" else [""] * len(texts)
            labels.append(f"{name}\n{row}" if row == "image" else row)
    return image_grid(images, len(texts), title, titles, labels)
