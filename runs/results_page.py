"""The tables and the picture of results, made from their files."""

import re
import statistics

from common.files import write_file
from runs import reproduction
from runs.experiments import EXPERIMENTS
from runs.runner import ROOT
from runs.table import (
    error_curve,
    error_percent,
    markdown,
    mean_and_deviation,
    plot_errors,
    replace_between,
)

PAGE = ROOT / "docs" / "results.md"
README = ROOT / "README.md"
_PICTURE = ROOT / "docs" / "figures" / "errors_by_epoch.png"
_IN_PICTURE = ("mnist-3", "mnist-3-muon")
_COLUMNS = (
    *("experiment", "data, network", "published", "here"),
    *("seeds", "steps", "minutes", "machine"),
)


def write(output_dir):
    """Writes the tables of the documents and the picture."""
    for document, text in tables(output_dir).items():
        text = replace_between(document.read_text(), "results", text)
        write_file(document, text)
    write_file(_PICTURE, picture(output_dir, _IN_PICTURE))


def tables(output_dir):
    """Dict from the path of a document to the text between its marks."""
    rows, short_rows = [], []
    for experiment in EXPERIMENTS.values():
        results = reproduction.read(output_dir, experiment)
        ensemble = results.pop("ensemble", None)
        runs = list(results.values())
        published = experiment.published_text(experiment.published)
        names = [f"`{experiment.name}`", experiment.title, published]
        rows += _rows(experiment, names, runs, ensemble)
        if runs and experiment.in_short and experiment.published is not None:
            count = f"{len(runs)} seed{'s' * (len(runs) > 1)}"
            policies = " or ".join(sorted(set(map(_policy, runs))))
            details = f"({count}, {_steps(runs)} steps, {policies})"
            short_rows.append([*names, f"{_errors(runs)} {details}"])
    short = markdown(_COLUMNS[:4], short_rows)
    return {PAGE: markdown(_COLUMNS, rows), README: short}


def _rows(experiment, names, runs, ensemble):
    if not runs:
        return [[*names, "not run", "", f"{experiment.steps:,}"]]
    minutes = statistics.mean(run["training_seconds"] for run in runs) / 60
    machines = sorted({_machine(run) for run in runs})
    seeds = ", ".join(str(run["seed"]) for run in runs)
    facts = [seeds, _steps(runs), f"{minutes:.0f}", "; ".join(machines)]
    rows = [[*names, _errors(runs), *facts]]
    if name := experiment.other_test:
        others = [run["others"][name] for run in runs]
        text = _errors(others)
        if "pairs" in name:
            unsure = [
                {**o, "wrong": o["examples"] - o["confident"]} for o in others
            ]
            text += f" (both above 0.5: {_errors(unsure)})"
        published = experiment.published_text(experiment.other_published)
        rows.append(["", f"the same on {name}", published, text])
    if ensemble is not None:
        rows.append(["", "their ensemble", "", _errors([ensemble])])
    return rows


def _errors(runs):
    return f"{mean_and_deviation([error_percent(run) for run in runs])} %"


def _steps(runs):
    return " or ".join(sorted({f"{run['steps']:,}" for run in runs}))


def _machine(run):
    machine = run["machine"]
    place = f"{machine['cores']} of {machine['device']}, {machine['backend']}"
    return f"{place}, {_policy(run)}"


def _policy(run):
    match = re.search(r"--dtype_policy=(\S+)", run["command"])
    return match[1] if match else "float32"


def picture(output_dir, names):
    """A PNG file: errors by epoch of experiments with one published error."""
    experiments = [EXPERIMENTS[name] for name in names]

    def draw(axes):
        for experiment in experiments:
            results = reproduction.read(output_dir, experiment)
            for seed, run in results.items():
                scale = run["batch_size"] / reproduction.EPOCH
                epochs = [point["step"] * scale for point in run["points"]]
                label = f"{experiment.name}, seed {seed}"
                axes.plot(epochs, error_curve(run), marker=".", label=label)
        published = experiments[0].published
        label = f"published, {published:g}%"
        axes.axhline(published, color="black", linestyle=":", label=label)

    return plot_errors(draw, experiments[0].title, "epochs")
