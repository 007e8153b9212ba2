"""The page of results, made from their files alone."""

import re
import statistics

import matplotlib
from matplotlib.figure import Figure

from old.tables import markdown
from old.text import mean_and_deviation
from reproduction.experiments import EXPERIMENTS
from reproduction.run import EPOCH, Machine, command_of, read, training_of
from visualisation.drawing import STYLE, make_logarithmic, png

_COLUMNS = (
    *("experiment", "data, network", "published", "here"),
    *("seeds", "steps", "minutes", "machine"),
)


def percent(values):
    """Mean and deviation of the test errors of several runs, in percent.

    Args:
      values: list of dicts with `wrong` and `examples`.
    """
    return mean_and_deviation(
        [100 * v["wrong"] / v["examples"] for v in values]
    )


def table(output_dir):
    """The results as a table in Markdown.

    Errors are means over the seeds with their sample deviation, minutes those
    of training alone, the mean.

    Args:
      output_dir: path of the folder with the files.
    """
    rows = []
    for experiment in EXPERIMENTS.values():
        rows += _rows(experiment, *read(output_dir, experiment))
    return markdown(_COLUMNS, rows)


def short_table(output_dir):
    """Published error and ours, in Markdown, of runs `in_short`."""
    rows = []
    for experiment in EXPERIMENTS.values():
        runs = list(read(output_dir, experiment)[0].values())
        if runs and experiment.in_short and experiment.published is not None:
            seeds = f"{len(runs)} seed{'s' * (len(runs) > 1)}"
            how = [seeds, f"{_steps(runs)} steps"]
            policies = {policy_of(run) or "float32" for run in runs}
            if policies != {"float32"}:
                how.append(" or ".join(sorted(policies)))
            name, title = f"`{experiment.name}`", experiment.title
            here = f"{percent(runs)} % ({', '.join(how)})"
            rows.append((name, title, experiment.figure(), here))
    return markdown(_COLUMNS[:4], rows)


def _rows(experiment, runs, ensemble):
    name = f"`{experiment.name}`"
    published = experiment.figure()
    if not runs:
        missing = f"not run: {experiment.not_run}"
        steps = f"{experiment.max_steps:,}"
        return [(name, experiment.title, published, missing, "", steps)]
    runs = list(runs.values())
    minutes = statistics.mean(run["training_seconds"] for run in runs) / 60
    facts = (
        ", ".join(str(run["seed"]) for run in runs),
        _steps(runs),
        f"{minutes:.0f}",
        "; ".join(sorted({machine_of(run) for run in runs})),
    )
    rows = [(name, experiment.title, published, f"{percent(runs)} %", *facts)]
    for evaluation in experiment.others:
        found = [run["others"][evaluation.name] for run in runs]
        confident = [
            {"wrong": f["examples"] - f["confident"], "examples": f["examples"]}
            for f in found
        ]
        text = f"{percent(found)} %"
        if "--pairs" in evaluation.flags:
            text += f" (both above 0.5: {percent(confident)} %)"
        published = experiment.figure(evaluation)
        rows.append(("", f"the same on {evaluation.name}", published, text))
    if ensemble is not None:
        rows.append(("", "their ensemble", "", f"{percent([ensemble])} %"))
    return rows


def _steps(runs):
    return " or ".join(sorted({f"{run['steps']:,}" for run in runs}))


def machine_of(run):
    """Where a run was done, and in what types of numbers, in a few words."""
    machine = run["machine"]
    place = f"{machine['cores']} of {machine['device']}, {machine['backend']}"
    policy = policy_of(run)
    return place if policy is None else f"{place}, {policy}"


def policy_of(run):
    """The types of numbers of a run's command; None for the default."""
    policy = re.search(r"--dtype_policy=(\S+)", run["command"])
    return None if policy is None else policy[1]


def commands():
    """Every training's command, in Markdown."""
    lines = ["```shell"]
    for name, experiment in EXPERIMENTS.items():
        config = training_of(experiment, 0, Machine())
        lines.append(f"# {name}\n{command_of(config)}")
    return "\n".join([*lines, "```"])


def picture(output_dir, names):
    """The error of every epoch of experiments, the published one as a line.

    Args:
      output_dir: path of the folder with the files.
      names: list of strings, experiments of one published result. The first
        gives the title.

    Returns:
      Bytes of a PNG file; None if there is no run.
    """
    experiments = [EXPERIMENTS[name] for name in names]
    runs = [read(output_dir, experiment)[0] for experiment in experiments]
    if not any(runs):
        return None
    with matplotlib.rc_context(STYLE):
        return png(_draw(experiments, runs))


def _draw(experiments, runs):
    figure = Figure(figsize=(5, 3), layout="constrained")
    axes = figure.add_subplot()
    for experiment, by_seed in zip(experiments, runs, strict=True):
        for seed, run in by_seed.items():
            label = f"{experiment.name}, seed {seed}"
            _plot_errors(axes, run, label)
    published = experiments[0].published
    label = f"published, {published:g}%"
    axes.axhline(published, color="black", linestyle=":", label=label)
    axes.set(xlabel="epochs", ylabel="test error, %")
    make_logarithmic(axes.yaxis)
    axes.set_title(experiments[0].title)
    axes.legend()
    return figure


def _plot_errors(axes, run, label):
    epochs = [p["step"] * run["batch_size"] / EPOCH for p in run["points"]]
    errors = [100 * p["wrong"] / run["examples"] for p in run["points"]]
    axes.plot(epochs, errors, marker=".", label=label)
