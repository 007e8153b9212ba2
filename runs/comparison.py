"""Trains and tests models on one data set, to compare their results."""

import dataclasses
import math
import shlex

from common import files, flags
from common.errors import UserError, user_errors
from common.flags import field, is_external, require_known
from config import MODEL_NAMES, Config
from input_data import registry
from resolve import with_defaults
from runs import runner

# Its weights are downloaded, so that it is compared only where named.
PHOTO_MODEL = "photo_capsule"
# With --minutes the speed is measured over so many steps and seconds, or more.
_MEASURED_STEPS, _MEASURED_SECONDS = 30, 15
# Flags of experiment.py that are not for --settings: rows have them in common.
_COMMON = "checkpoint", "data_dir", "dataset", "epochs", "eval_size", "format"
_COMMON += "max_steps", "model", "patience", "save_step", "seed", "summary_dir"
_COMMON += "train", "validate"


@dataclasses.dataclass(frozen=True)
class CompareFlags:
    """Flags of compare.py, except those that describe the data."""

    figure_format: str | None = field(
        None,
        "A second format of the pictures, in addition to PNG.",
        choices=("pdf", "svg"),
    )
    minutes: float | None = field(
        None,
        "Budget: minutes of training for each run. Each model's measured speed "
        "turns them into steps.",
        above=0,
    )
    models: str | None = field(
        None,
        "Names to compare, separated by commas: MODEL, MODULE:NAME, or "
        "MODEL-LABEL, a model with the flags of this name in --settings. "
        f"Default: all names in --settings and all models but {PHOTO_MODEL}.",
    )
    output_dir: str | None = field(None, "Folder for the comparison.")
    points: int = field(
        5, "Checkpoints of each run to evaluate, the last included.", at_least=2
    )
    seeds: int = field(1, "Seeds of each model, from --seed on.", at_least=1)
    steps: int | None = field(None, "Budget: training steps.", at_least=1)


def compare(settings, config, lines=()):
    """Runs missing trainings, prints the tables and draws the pictures.

    `config` has the data flags; the list `lines` has the values of --settings.
    """
    if not settings.output_dir:
        raise UserError("--output_dir is required")
    if (settings.minutes is None) == (settings.steps is None):
        raise UserError("give either --minutes or --steps")
    trainings = _trainings(settings.models, config, lines)
    path = files.make_folder(settings.output_dir) / "comparison.json"
    with files.sole_process(path.parent, "comparing"):
        _compare(path, settings, config, trainings)


def _compare(path, settings, config, trainings):
    content = _read(path, settings, trainings)
    for name, training in trainings.items():
        new = {"flags": _text(training), "steps": settings.steps, "runs": {}}
        model = content["models"].setdefault(name, new)
        first = with_defaults(dataclasses.replace(training, seed=0))
        images = registry.load(first, train=False).evaluation_digest
        if model.setdefault("images", images) != images:
            raise UserError(
                f"{path} has results of {name} on other images or labels; "
                "choose another --output_dir"
            )
    models = {name: content["models"][name] for name in trainings}
    # Seed by seed, so that all models soon have a first result.
    todo = [
        (name, model, seed)
        for seed in range(config.seed, config.seed + settings.seeds)
        for name, model in models.items()
        if str(seed) not in model["runs"]
    ]
    left = runner.countdown(len(todo))
    for (name, model, seed), text in zip(todo, left, strict=True):
        print(f"{name}, seed {seed} ({text}):", flush=True)
        if model.get("steps") is None:
            model["steps"] = _steps(trainings[name], 60 * settings.minutes)
            files.write_json(path, content)
        run = dataclasses.replace(
            trainings[name],
            summary_dir=str(path.parent / name / str(seed)),
            seed=seed,
            max_steps=model["steps"],
            save_step=math.ceil(model["steps"] / settings.points),
        )
        model["runs"][str(seed)] = runner.train_and_evaluate(run)
        files.write_json(path, content)
    budget = f"{settings.steps or 0:,} steps"
    if settings.minutes:
        runs = [run for m in models.values() for run in m["runs"].values()]
        minutes = [run["training_seconds"] / 60 for run in runs]
        budget = f"{min(minutes):.2f} to {max(minutes):.2f} min"
    title = f"{with_defaults(config).dataset}, {budget} each"
    kind = "validation" if config.validate else "test"
    from runs import pages  # only now, as it imports Matplotlib
    from visualization.drawing import also_as, write_files

    table = pages.comparison_rows(models)
    print(f"\n{title}:\n{pages.markdown(*table, padded=True)}")
    print(f"\n{pages.paired_table(models)}\n")
    pictures = pages.comparison_pictures(models, title, kind)
    pictures = also_as(settings.figure_format, pictures)
    contents = pictures | pages.table_files("comparison", *table)
    print(*write_files(path.parent, contents), sep="\n")


def _steps(training, seconds):
    """The number of training steps in some seconds, by measured speed."""
    rate = runner.measure_speed(training, _MEASURED_STEPS)
    steps = math.ceil(max(_MEASURED_SECONDS, seconds / 10) * rate)
    if steps > _MEASURED_STEPS:
        rate = runner.measure_speed(training, steps)
    return math.ceil(seconds * rate)


def _trainings(names, common, lines):
    """Dict from the name of a row to the `Config` of its trainings."""
    own = {}
    for line in lines:
        with user_errors(f"--settings={line}"):
            name, *arguments = shlex.split(line)
        for text in flags.arguments(flags.parse(Config, arguments), _COMMON):
            raise UserError(
                f"--settings={line}: {text} cannot be set for one row"
            )
        own.setdefault(name, []).extend(arguments)
    for_all = own.pop("all", [])
    known = dict.fromkeys([*MODEL_NAMES, *own])
    default = [name for name in known if name != PHOTO_MODEL or name in own]
    names = names.split(",") if names else default
    for name in own:
        require_known("name in --settings", name, names)
    trainings = {}
    for name in names:
        model, _, label = name.partition("-")
        if label or not is_external(model):
            require_known("name", name, known)
        arguments = [*for_all, *own.get(name, ()), f"--model={model}"]
        training = flags.parse(Config, [*flags.arguments(common), *arguments])
        row = name.rpartition(":")[2]  # CLASS-LABEL, also the folder's name
        if trainings.setdefault(row, training) != training:
            raise UserError(f"two models to compare have the name {row}")
    return trainings


def _text(training):
    return flags.command_line(dataclasses.replace(training, seed=0))


def _read(path, settings, trainings):
    names = "minutes", "steps", "points"
    budget = {name: getattr(settings, name) for name in names}
    if not path.exists():
        return {"budget": budget, "models": {}}
    content = files.read_json(path, "comparison")
    for name, model in content["models"].items():
        text = _text(trainings[name]) if name in trainings else model["flags"]
        both = (content["budget"], model["flags"]), (budget, text)
        old, new = (
            {*(f"--{k}={limits.get(k)}" for k in names), *shlex.split(line)}
            for limits, line in both
        )
        if old != new:
            raise UserError(
                f"{path} has other settings of {name}: "
                f"{' '.join(sorted(old - new)) or '(none)'}, not "
                f"{' '.join(sorted(new - old)) or '(none)'}; choose "
                "another --output_dir"
            )
    return content
