"""Tables and pictures of comparisons and of reproduced results."""

import csv
import io
import itertools
import re
import statistics
import textwrap

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FixedLocator
from scipy.stats import binomtest

from common.errors import printable
from common.files import write_file
from runs.reproduction import EPOCH, EXPERIMENTS, read
from runs.runner import ROOT
from visualization import drawing

PAGE = ROOT / "docs" / "results.md"
README = ROOT / "README.md"
_PICTURE = ROOT / "docs" / "figures" / "errors_by_epoch.png"
_IN_PICTURE = ("mnist-3", "mnist-3-muon")
_SHORT_COLUMNS = ("experiment", "data, network", "published", "here")
_COLUMNS = (*_SHORT_COLUMNS, "seeds", "steps", "minutes", "machine")
_MARKDOWN = str.maketrans({"|": r"\|"})
_LATEX = str.maketrans(
    {character: rf"\{character}" for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "^": r"\^{}", "~": r"\~{}"}
    | {"`": "", "±": r"$\pm$"}
)


def markdown(head, rows, padded=False):
    """A table of strings, numbers and None (written as -), in Markdown.

    Missing cells at the end of a row are empty. If `padded`, all cells of a
    column have the same width.
    """
    lines = [[_text(v, _MARKDOWN) for v in row] for row in (head, *rows)]
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


def table_files(name, head, rows):
    """Dict from file name to content: a table as CSV and as LaTeX."""
    buffer = io.StringIO()
    # Spreadsheets take what begins with + for a formula.
    names = ["deviation" if name == "+-" else name for name in head]
    csv.writer(buffer, lineterminator="\n").writerows([names, *rows])
    return {f"{name}.csv": buffer.getvalue(), f"{name}.tex": latex(head, rows)}


def latex(head, rows, caption=""):
    """A table in LaTeX; with a `caption`, it floats."""
    lines = [
        " & ".join(_text(value, _LATEX) for value in row) + r" \\"
        for row in (head, *rows)
    ]
    columns = "l" + "r" * (len(head) - 1)
    lines[0] = rf"\begin{{tabular}}{{{columns}}} {lines[0]} \hline"
    lines.append(r"\end{tabular}")
    if caption:
        look = r"\begin{table}\centering\footnotesize\tabcolsep=2pt"
        lines.insert(0, rf"{look} \caption{{{caption.translate(_LATEX)}}}")
        lines.append(r"\end{table}")
    return "\n".join([*lines, ""])


def _text(value, escapes):
    if value is None:
        return "-"
    if isinstance(value, str):
        return printable(value).translate(escapes)
    is_small = isinstance(value, float) and abs(value) < 100
    return f"{value:.2f}" if is_small else f"{value:,.0f}"


def replace_between(text, name, content):
    """Replaces what is between <!-- name: begin --> and <!-- name: end -->."""
    return re.sub(
        rf"(<!-- {name}: begin -->).*(<!-- {name}: end -->)",
        lambda marks: f"{marks[1]}\n\n{content}\n\n{marks[2]}",
        text,
        flags=re.DOTALL,
    )


@drawing.styled
def plot_errors(draw, title, xlabel, ylabel="test error in %"):
    """Returns the bytes of a PNG plot; `draw(axes)` draws the lines."""
    figure = Figure(figsize=(6.2, 3.4), layout="constrained")
    axes = figure.subplots()
    drawing.distinguish_lines(axes)
    draw(axes)
    if all(np.min(line.get_ydata()) > 0 for line in axes.lines):
        drawing.make_logarithmic(axes.yaxis)
    else:  # an error of 0 has no logarithm
        axes.set_yscale("symlog", linthresh=0.2)
        axes.margins(y=0.1)
        axes.set_ylim(bottom=-0.03)  # points at 0 are whole
        ticks = 0, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100
        axes.yaxis.set_major_locator(FixedLocator(ticks))
        axes.yaxis.set_major_formatter("{x:g}")
    axes.set(title=title, xlabel=xlabel, ylabel=ylabel)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    lines = sorted(axes.lines, key=lambda line: -line.get_ydata()[-1])
    place = {"loc": "outside right center", "frameon": False}
    figure.legend(handles=lines, handlelength=3, **place)
    return drawing.png(figure)


def _error_curve(run):
    """The test errors of the checkpoints of a run, in percent."""
    return [100 * point["wrong"] / run["examples"] for point in run["points"]]


def comparison_rows(models):
    """Column names and rows of a table of the "models" of comparison.json."""
    rows = [_comparison_row(name, model) for name, model in models.items()]
    return list(rows[0]), [list(row.values()) for row in rows]


def _comparison_row(name, model):
    runs = list(model["runs"].values())
    network = runs[0]["network"]
    mean, deviation = mean_and_deviation([_error_curve(r)[-1] for r in runs])

    def median(key):
        values = [run[key] for run in runs if run.get(key) is not None]
        return statistics.median(values) if values else None

    return {
        "model": name,
        "weights": network["weights"],
        "without decoder": network["weights_without_decoder"],
        "multiply-adds": network.get("multiply_adds"),
        "steps": runs[0]["points"][-1]["step"],
        "training minutes": median("training_seconds") / 60,
        "training images/s": median("training_images_per_second"),
        "inference images/s": median("inference_images_per_second"),
        "peak MB": max(run["peak_megabytes"] for run in runs),
        "error %": mean,
        "+-": deviation,
        "seeds": len(runs),
    }


def paired_table(models):
    """A table of McNemar's exact test for each pair of models.

    It counts and lists images (seed/image) that only one model gets wrong, once
    for each seed that both models have.
    """
    rows = []
    for one, other in itertools.combinations(models, 2):
        runs = models[one]["runs"], models[other]["runs"]
        seeds = [
            seed
            for seed, run in runs[0].items()
            # Not those of an earlier version, or of other test images.
            if all("wrong_examples" in r.get(seed, ()) for r in runs)
            and run["examples"] == runs[1][seed]["examples"]
        ]
        if not seeds:
            continue
        wrong = [[r[s]["wrong_examples"] for r in runs] for s in seeds]
        *only, p = compare_wrong(wrong)
        images = [
            [f"{seeds[n]}/{i}" if seeds[1:] else i for n, i in sorted(pairs)]
            for pairs in only
        ]
        rows.append([one, other, *map(_listed, images), f"{p:.2g}"])
    head = ["A", "B", "only A wrong", "only B wrong", "McNemar's p"]
    return markdown(head, rows, padded=True) if rows else ""


def compare_wrong(trials):
    """Compares A and B by pairs of lists, the indices of their wrong images.

    Returns the sets of (trial, index) that only A and only B gets wrong, and
    McNemar's exact p.
    """
    a, b = (
        {(n, i) for n, pair in enumerate(trials) for i in pair[which]}
        for which in (0, 1)
    )
    p = binomtest(len(a - b), len(a ^ b)).pvalue if a != b else 1.0
    return a - b, b - a, p


def mean_and_deviation(values):
    """The mean, and the sample deviation or None for one value."""
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return statistics.mean(values), deviation


def _listed(numbers):
    text = f"{len(numbers)}: {', '.join(map(str, numbers))}"
    return textwrap.shorten(text.strip(": "), 30, placeholder=" ...")


def comparison_pictures(models, title, kind):
    """Dict of PNG files: errors by weights and by time, labeled with `kind`."""

    def draw_by_weights(axes):
        for name, model in models.items():
            row = _comparison_row(name, model)
            weights, error = row["without decoder"], row["error %"]
            spread = row["+-"] or 0
            (point,) = axes.plot([weights], [error], label=name)
            ends = error - spread, error + spread
            axes.vlines(weights, *ends, point.get_color())
        drawing.make_logarithmic(axes.xaxis, subs=(1, 2, 5))
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))

    def draw_by_time(axes):
        for name, model in models.items():
            runs = model["runs"].values()
            errors = np.array([_error_curve(run) for run in runs])
            seconds = [[p["seconds"] for p in run["points"]] for run in runs]
            minutes = np.mean(seconds, axis=0) / 60
            (line,) = axes.plot(minutes, errors.mean(0), label=name)
            spread = errors.min(0), errors.max(0)
            color = line.get_color()
            axes.fill_between(minutes, *spread, color=color, alpha=0.2)

    labels = "weights without decoder", f"{kind} error in %"
    by_weights = plot_errors(draw_by_weights, title, *labels)
    labels = "minutes of training", f"{kind} error in %"
    by_time = plot_errors(draw_by_time, title, *labels)
    return {"error_by_weights.png": by_weights, "error_by_time.png": by_time}


def write_results(output_dir):
    """Writes tables of results (pages, CSV, LaTeX) and `result_picture`."""
    tables = result_tables(output_dir)
    drawing.write_files(output_dir, table_files("results", *tables[PAGE]))
    for page, table in tables.items():
        text = page.read_text("utf-8")
        write_file(page, replace_between(text, "results", markdown(*table)))
    write_file(_PICTURE, result_picture(output_dir))


def result_tables(output_dir):
    """Dict from the path of a Markdown page to column names and rows."""
    rows, short_rows = [], []
    for experiment in EXPERIMENTS.values():
        runs, ensemble = read(output_dir, experiment)
        published = experiment.published_text(experiment.published)
        names = [f"`{experiment.name}`", experiment.title, published]
        if not runs:
            rows.append([*names, "not run", "", f"{experiment.steps:,}"])
            continue
        errors = _errors(map(_percent, runs))
        digits = [run.get("wrong_percent_per_object") for run in runs]
        if None not in digits and "--num_targets=2" in experiment.flags:
            errors += f" (of the digits: {_errors(digits)})"
        seeds = ", ".join(str(run["seed"]) for run in runs)
        seconds = statistics.mean(run["training_seconds"] for run in runs)
        facts = f"{seconds / 60:.0f}", _joined("; ", map(_machine, runs))
        rows.append([*names, errors, seeds, _steps(runs), *facts])
        if name := experiment.other_test:
            others = [run["others"][name] for run in runs]
            text = _errors(map(_percent, others))
            if "pairs" in name:
                unsure = [100 - _percent(run, "confident") for run in others]
                text += f" (lengths above 0.5 required: {_errors(unsure)})"
            published = experiment.published_text(experiment.other_published)
            rows.append(["", f"the same on {name}", published, text])
        if ensemble is not None:
            error = _errors([_percent(ensemble)])
            rows.append(["", "their ensemble", "", error])
        if experiment.in_short == "yes":
            count = f"{len(runs)} seed{'s' * (len(runs) > 1)}"
            policies = _joined(" or ", map(_policy, runs))
            details = f"({count}, {_steps(runs)} steps, {policies})"
            short_rows.append([*names, f"{errors} {details}"])
    return {PAGE: (_COLUMNS, rows), README: (_SHORT_COLUMNS, short_rows)}


def _percent(run, count="wrong"):
    return 100 * run[count] / run["examples"]


def _errors(percents):
    """The mean error and its sample deviation, such as 0.69 ± 0.05 %."""
    mean, deviation = mean_and_deviation(list(percents))
    spread = "" if deviation is None else f" ± {deviation:.2f}"
    return f"{mean:.2f}{spread} %"


def _joined(separator, texts):
    return separator.join(sorted(set(texts)))


def _steps(runs):
    return _joined(" or ", (f"{run['steps']:,}" for run in runs))


def _machine(run):
    machine = run["machine"]
    cores = f"{machine['cores']} core{'s' * (machine['cores'] > 1)}"
    place = machine["device"], cores, machine["backend"], _policy(run)
    return ", ".join(place)


def _policy(run):
    match = re.search(r"--dtype_policy=(\S+)", run["command"])
    return match[1] if match else "float32"


def result_picture(output_dir):
    """A PNG file of test errors by epoch, with the published error."""
    experiments = [EXPERIMENTS[name] for name in _IN_PICTURE]

    def draw(axes):
        for experiment in experiments:
            for run in read(output_dir, experiment)[0]:
                scale = run["batch_size"] / EPOCH
                epochs = [point["step"] * scale for point in run["points"]]
                label = f"{experiment.name}, seed {run['seed']}"
                axes.plot(epochs, _error_curve(run), marker=".", label=label)
        published = float(experiments[0].published)
        label = f"published, {published:g}%"
        axes.axhline(published, color="black", linestyle=":", label=label)

    return plot_errors(draw, experiments[0].title, "epochs")
