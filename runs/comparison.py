"""Compares models on one data set: settings, runs, table and pictures."""

import dataclasses
import json
import math
import shlex
import statistics

from common import flags
from common.errors import UserError, reading
from common.files import make_folder, write_file, write_files
from common.flags import field, flag_specs, require_known
from common.startup import load_backend
from config import Config
from models.registry import MODELS
from runs import runner

ALL_MODELS = "all"
# Flags that may differ between the models of one comparison.
_PER_MODEL = (
    *("allow_nonfinite", "augment", "batch_size", "crops", "deterministic"),
    *("device", "dtype_policy", "gpu_memory_limit", "hparams_override"),
    *("model", "num_gpus", "shift"),
)
# With --minutes the speed is measured over a few steps, then over as many as
# fit into a part of the budget, at most some seconds.
_FIRST_STEPS = 12
_LONGEST_MEASUREMENT = 20
_MEASURED_SHARE = 0.1
_CURVE_POINTS = 100


@dataclasses.dataclass(frozen=True)
class Settings:
    """Flags of compare.py beside those of the data."""

    minutes: float | None = field(
        None,
        "Budget: minutes of training for each run. They become steps by the "
        "speed of each model, which is measured first.",
        above=0,
    )
    models: str | None = field(
        None,
        "What to compare, separated by commas: names of models and "
        "MODEL-LABEL, a model with the flags that --settings gives this name.",
        default_text="all models and all names in --settings",
    )
    output_dir: str | None = field(
        None,
        "Folder for the comparison: comparison.json, two pictures, and a "
        "folder for each run.",
    )
    points: int = field(
        5,
        "Checkpoints of each run that are evaluated, the last included: "
        "points of the curve of errors.",
        at_least=2,
    )
    seeds: int = field(
        1,
        "Runs of each model, with the seeds --seed, --seed + 1, and so on.",
        at_least=1,
    )
    steps: int | None = field(
        None, "Budget: training steps of each run.", at_least=1
    )


def compare(settings, config, lines=()):
    """Does the runs that are missing, prints the table and draws pictures.

    Runs are trainings in `<output_dir>/<model>/<seed>`, which resume where
    they were interrupted.

    Args:
      settings: `Settings`.
      config: `Config` with the data flags.
      lines: list of strings, the values of --settings.

    Raises:
      UserError: for wrong settings, or settings other than those with which
        the comparison in the folder was begun.
      Interrupted: after a signal.
    """
    if not settings.output_dir:
        raise UserError("--output_dir is required")
    if (settings.minutes is None) == (settings.steps is None):
        raise UserError("give either --minutes or --steps")
    trainings = _trainings(settings.models, config, lines)
    path = make_folder(settings.output_dir) / "comparison.json"
    content = _begin(path, settings, trainings)
    # Seed by seed, so that an early look compares all models.
    for seed in range(config.seed, config.seed + settings.seeds):
        for name, training in trainings.items():
            model = content["models"][name]
            if str(seed) in model["runs"]:
                continue
            print(f"{name}, seed {seed}:", flush=True)
            if model["steps"] is None:
                model["steps"] = _measure_steps(training, settings.minutes)
            _write(path, content)
            run = dataclasses.replace(
                training,
                summary_dir=str(path.parent / name / str(seed)),
                seed=seed,
                max_steps=model["steps"],
                save_step=math.ceil(model["steps"] / settings.points),
                summary_step=math.ceil(model["steps"] / _CURVE_POINTS),
            )
            model["runs"][str(seed)] = runner.train_and_evaluate(run)
            _write(path, content)
    models = {name: content["models"][name] for name in trainings}
    budget = (
        f"{settings.minutes:g} min"
        if settings.steps is None
        else f"{settings.steps:,} steps"
    )
    title = f"{config.dataset_name}, {budget} each"
    print(f"\n{title}:\n{table(models)}")
    kind = "validation" if config.validate else "test"
    print(*write_files(path.parent, pictures(models, title, kind)), sep="\n")


def _trainings(names, common, lines):
    """Dict from the name of a row to the `Config` of its trainings."""
    own = {}
    for line in lines:
        name, *arguments = shlex.split(line)
        own.setdefault(name, []).extend(arguments)
    for_all = own.pop(ALL_MODELS, [])
    known = dict.fromkeys([*sorted(MODELS), *own])
    load_backend()
    from models.hparams import parse_overrides
    from models.registry import model_class

    trainings = {}
    for name in names.split(",") if names else known:
        require_known("name", name, known)
        model = name.partition("-")[0]
        arguments = shlex.split(flags.command_line(common))
        arguments += [*for_all, *own.get(name, ()), f"--model={model}"]
        config = flags.parse(Config, arguments)
        for flag in flag_specs(Config):
            differs = getattr(config, flag) != getattr(common, flag)
            if differs and flag not in _PER_MODEL:
                raise UserError(
                    f"--settings of {name}: --{flag} must be the same for all "
                    "models"
                )
        # Fails now rather than hours later.
        hparams = model_class(model).HParams
        hparams(**parse_overrides(hparams, config.hparams_override))
        trainings[name] = config
    return trainings


def _begin(path, settings, trainings):
    """Reads comparison.json, or begins it, and adds the given trainings."""
    budget = {
        name: getattr(settings, name) for name in ("minutes", "steps", "points")
    }
    content = {"budget": budget, "models": {}}
    if path.exists():
        with reading(path):
            before = json.loads(path.read_text())
        # What failed before its first checkpoint, as by a wrong flag, does not
        # count.
        for name, model in before["models"].items():
            checkpoints = path.parent.glob(f"{name}/*/train/model.ckpt-*")
            if model["runs"] or any(checkpoints):
                content["models"][name] = model
                content["budget"] = before["budget"]
    for name, config in trainings.items():
        text = flags.command_line(dataclasses.replace(config, seed=0))
        model = content["models"].setdefault(
            name, {"flags": text, "steps": settings.steps, "runs": {}}
        )
        if content["budget"] != budget or set(model["flags"].split()) != set(
            text.split()
        ):
            raise UserError(
                f"{path} was begun with {content['budget']} and {name} with "
                f"{model['flags']}; give the same, or choose another "
                "--output_dir"
            )
    return content


def _write(path, content):
    write_file(path, json.dumps(content, indent=2) + "\n")


def _measure_steps(config, minutes):
    """The number of training steps that take the given time."""
    rate = runner.measure_speed(config, _FIRST_STEPS)
    seconds = min(_LONGEST_MEASUREMENT, _MEASURED_SHARE * 60 * minutes)
    if rate * seconds > _FIRST_STEPS:
        rate = runner.measure_speed(config, int(rate * seconds))
    return max(1, round(60 * minutes * rate))


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
    errors = [error_percent(run) for run in runs]
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
