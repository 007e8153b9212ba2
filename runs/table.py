"""Markdown tables and pictures of results."""

import re
import statistics

import matplotlib
from matplotlib.figure import Figure

from visualisation.drawing import STYLE, make_logarithmic, png


def markdown(head, rows, padded=False):
    """A table in Markdown; missing cells at the end of a row are empty.

    Args:
      head: list of strings.
      rows: list of lists of strings, numbers and None.
      padded: bool, whether all cells of a column have the same width.
    """
    lines = [[_text(value) for value in row] for row in (head, *rows)]
    lines = [line + [""] * (len(head) - len(line)) for line in lines]
    widths = [0] * len(head)
    rule = ["---"] * len(head)
    if padded:
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        rule = [f"{'-' * (width - 1)}:" for width in widths]
    lines.insert(1, rule)
    return "\n".join(
        f"| {' | '.join(map(str.rjust, line, widths))} |" for line in lines
    )


def _text(value):
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"
    return f"{value:,}" if isinstance(value, int) else value


def replace_between(text, name, content):
    """Replaces what stands between the marks of a name in a document."""
    return re.sub(
        rf"(<!-- {name}: begin -->).*(<!-- {name}: end -->)",
        lambda marks: f"{marks[1]}\n\n{content}\n\n{marks[2]}",
        text,
        flags=re.DOTALL,
    )


def error_percent(run):
    """The test error of a dict with `wrong` and `examples`."""
    return 100 * run["wrong"] / run["examples"]


def error_curve(run):
    """The test errors of the checkpoints of a run, in percent."""
    return [100 * point["wrong"] / run["examples"] for point in run["points"]]


def mean_and_deviation(numbers):
    """Such as 0.69 ± 0.05, the sample deviation."""
    text = f"{statistics.mean(numbers):.2f}"
    if len(numbers) > 1:
        text += f" ± {statistics.stdev(numbers):.2f}"
    return text


def plot_errors(draw, title, xlabel, ylabel="test error in %"):
    """A PNG file of what the function `draw` plots into the axes."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(6.2, 3.4), layout="constrained")
        axes = figure.subplots()
        draw(axes)
        if axes.dataLim.y0 > 0:
            make_logarithmic(axes.yaxis)
        else:  # an error of 0 has no logarithm
            axes.set_ylim(bottom=0)
        axes.set(title=title, xlabel=xlabel, ylabel=ylabel)
        axes.grid(alpha=0.3)
        figure.legend(loc="outside right upper", frameon=False)
        return png(figure)
