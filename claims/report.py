"""Tables and pictures of the results in robustness.json."""

import itertools
from collections import defaultdict

import numpy as np
from matplotlib.figure import Figure

from claims.measures import TESTS
from runs.pages import compare_wrong, mean_and_deviation
from visualization import drawing

_COLUMNS = 4  # panels in a row


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
            errors = [_error(trials[severity]) for severity in three]
            middle, p = three[1], None
            both = networks[first].get(middle, []), trials[middle]
            # Trials of two networks are paired by their order.
            pairs = [(a, b) for (_, a), (_, b) in zip(*both, strict=False)]
            if pairs and name != first and measure in TESTS:
                *_, p = compare_wrong(pairs)
            texts = ", ".join(map(str, three))
            row = [measure, name, len(trials[middle]), texts]
            rows.append([*row, *sum(errors, ()), p])
    return [*head, "McNemar's p"], rows


def _measures(results):
    """Nested dicts, by measure, network and severity, of lists of trials.

    A trial is a pair: the error in percent, and the list of wrong examples
    (None for measures that have no such list).
    """
    found = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for result in results:
        test = result["test"]
        counts = {test: (result["wrong"], result["wrong_examples"])}
        if "by_own_loss" in result:
            counts[f"{test}, own loss"] = result["by_own_loss"], None
        if {"undetected", "against_detector"} <= result.keys():
            aware = result["against_detector"]["undetected"]
            counts["undetected"] = result["undetected"], None
            counts["undetected, detector attacked"] = aware, None
        for measure, (count, examples) in counts.items():
            trials = found[measure][result["network"]][result["severity"]]
            trials.append((100 * count / result["num_examples"], examples))
    return found


def _three(measure, severities):
    """The lowest, middle and highest severity that changes images."""
    unchanged = 1 if measure == "scale" else 0
    changing = sorted(s for s in severities if s != unchanged)
    some = changing or list(severities)
    return some[0], some[(len(some) - 1) // 2], some[-1]


def _error(trials):
    return mean_and_deviation([percent for percent, _ in trials])


@drawing.styled
def draw(results, title):
    """A picture with a panel for each measure: error by severity."""
    measures = _measures(results)
    names = dict.fromkeys(result["network"] for result in results)
    columns = min(_COLUMNS, len(measures))
    rows = -(-len(measures) // columns)
    figure = Figure((2.6 * columns, 2.2 * rows + 0.8), layout="constrained")
    figure.suptitle(title)
    for number, (measure, networks) in enumerate(measures.items(), 1):
        axes = figure.add_subplot(rows, columns, number)
        drawing.distinguish_lines(axes)
        for name in names:
            trials = networks.get(name, {})
            severities = sorted(trials)
            errors = [_error(trials[severity]) for severity in severities]
            mean, spread = np.array(errors, float).reshape(-1, 2).T
            (line,) = axes.plot(severities, mean, ms=3, label=name)
            ends = mean - spread, mean + spread  # NaN draws nothing
            color = line.get_color()
            axes.fill_between(severities, *ends, color=color, alpha=0.2)
        unit, _ = TESTS.get(measure, TESTS["pgd"])
        axes.set(title=measure, xlabel=unit, ylabel="images, %", ylim=(0, 102))
        axes.grid(alpha=0.3)
    place = {"loc": "outside lower center", "ncols": columns}
    figure.legend(handles=axes.lines, **place)
    return drawing.png(figure)


def attacked_png(rows, title):
    """A picture of the rows that `Examiner.examples` returns."""
    labels, *cells = zip(*rows, strict=True)
    images, texts = (list(itertools.chain(*part)) for part in cells)
    columns = len(texts) // len(labels)
    return drawing.image_grid(images, columns, title, texts, labels)
