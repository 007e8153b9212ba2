"""Tables and pictures of the results in robustness.json."""

import collections
import itertools
import operator
from collections import defaultdict

import numpy as np
from matplotlib.figure import Figure

from claims.measures import TESTS
from runs import pages
from visualization import drawing

_COLUMNS = 4  # panels in a row
_P = 0.05  # differences with a smaller p are significant
# Percent of wrong images, their indices (or None), and both without the change.
_Trial = collections.namedtuple("_Trial", "percent wrong percent_before before")


def summary(results):
    """Column names, a row for each measure and network, and sentences.

    McNemar's exact test compares a network with the first one at the middle
    severity. It counts each image once for each trial that both have.
    """
    head = ["test", "network", "trials", "severities", "unchanged"]
    for severity in ("low", "middle", "high"):
        head += [f"{severity} %", f"{severity} +-"]
    rows, sentences, measures = [], [], _measures(results)
    count = sum(len(of) - 1 for measure, of, _ in measures if measure in TESTS)
    for measure, networks, three in measures:
        first, *_ = networks
        for name, trials in networks.items():
            p, both = None, [networks[first][three[1]], trials[three[1]]]
            if name != first and measure in TESTS:
                p = _mcnemar(*both, "wrong")
                # Bonferroni's correction
                text = _sentence(first, name, both, min(1, count * p))
                sentences.append(f"{measure} {three[1]}: {text}.")
                p = f"{p:.2g}"
            row = [measure, name, len(both[1]), ", ".join(map(str, three))]
            row.append(_error(both[1], "percent_before")[0])
            errors = [_error(trials[severity]) for severity in three]
            rows.append([*row, *sum(errors, ()), p])
    return [*head, "McNemar's p"], rows, "\n".join(sentences)


def _sentence(first, name, both, p):
    if _mcnemar(*both, "before") < _P:
        a, b = (_error(trials, "percent_before")[0] for trials in both)
        return (
            f"nothing can be said about {first} and {name}, because their "
            f"errors on unchanged images differ ({a:.1f} and {b:.1f} %)"
        )
    points = np.subtract(*(_error(trials)[0] for trials in both))
    if not points:
        return f"{first} and {name} have the same error"
    better, worse = (name, first) if points > 0 else (first, name)
    return (
        f"{better} is better than {worse} by {abs(points):.1f} points, "
        f"{'' if p < _P else 'not '}significantly (corrected p = {p:.2g})"
    )


def _mcnemar(one, other, column):
    """McNemar's p; trials of two networks are paired by their order."""
    lists = ([getattr(t, column) for t in trials] for trials in (one, other))
    return pages.compare_wrong(list(zip(*lists, strict=False)))[-1]


def latex(rows, title):
    """Tables in LaTeX, one for each measure, from the rows of `summary`."""
    tables = []
    for measure, group in itertools.groupby(rows, operator.itemgetter(0)):
        lines = []
        for _, name, trials, texts, unchanged, *errors, p in group:
            cells = [f"{unchanged:.1f}"]
            for mean, spread in zip(*[iter(errors)] * 2, strict=True):
                spread = "" if spread is None else f" ± {spread:.1f}"
                cells.append(f"{mean:.1f}{spread}")
            head = ["network", "trials", "unchanged", *texts.split(", "), "p"]
            lines.append([name, trials, *cells, p])
        unit, _ = TESTS.get(measure, TESTS["pgd"])
        caption = (
            f"{title}, {measure}: images in %, unchanged and at three "
            f"severities ({unit}), mean ± standard deviation over the trials. "
            "p: McNemar's exact test against the first network at the middle "
            "severity."
        )
        tables.append(pages.latex(head, lines, caption))
    return "\n".join(tables)


def _measures(results):
    """List of (measure, dict from network to trials, three severities).

    Trials are a dict from severity to a list of `_Trial`. The severities are
    the lowest, middle and highest that all the networks have.
    """
    found = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for result in results:
        test, total = result["test"], result["num_examples"]
        before = result["wrong_unchanged"]
        right = total - len(before)
        counts = {test: (result["wrong"], total)}
        if "by_own_loss" in result:
            counts[f"{test}, own loss"] = result["by_own_loss"], total
        if "against_detector" in result and right:
            aware = result["against_detector"]["undetected"]
            counts["undetected"] = result["undetected"], right
            counts["undetected, detector attacked"] = aware, right
        for measure, (count, of) in counts.items():
            trials = found[measure][result["network"]][result["severity"]]
            wrong = result["wrong_examples"] if measure == test else None
            percent_before = 100 * len(before) / total
            trials.append(
                _Trial(100 * count / of, wrong, percent_before, before)
            )
    return [(name, of, _three(name, of.values())) for name, of in found.items()]


def _three(measure, networks):
    common = set.intersection(*map(set, networks))
    changing = common - {1 if measure == "scale" else 0}
    some = sorted(changing or common)
    return some[0], some[(len(some) - 1) // 2], some[-1]


def _error(trials, column="percent"):
    return pages.mean_and_deviation([getattr(t, column) for t in trials])


@drawing.styled
def draw(results, title):
    """A picture with a panel for each measure: error by severity."""
    measures = _measures(results)
    names = dict.fromkeys(result["network"] for result in results)
    columns = min(_COLUMNS, len(measures))
    rows = -(-len(measures) // columns)
    figure = Figure((2.6 * columns, 2.2 * rows + 0.8), layout="constrained")
    figure.suptitle(title)
    for number, (measure, networks, _) in enumerate(measures, 1):
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
