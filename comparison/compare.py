"""A comparison: its runs one after the other, what was found kept as JSON."""

import dataclasses
import json
import math

import checkpoints
from comparison import table
from comparison.run import measure_speed, train_and_evaluate
from comparison.settings import training
from old import flags
from old.durable import make_folder, write_file, write_files
from old.errors import UserError
from old.processes import in_own_process
from old.version import commit
from training.process import sole_trainer

JSON_FILE = "comparison.json"
# With --minutes the speed is measured by so many steps, and then for so long.
_FIRST_STEPS = 12
_SECONDS = 20
_MOST_SHARE = 0.1
# Points of the curves of each run.
_SUMMARIES = 100


def compare(settings, own):
    """Does all runs that are not there yet; prints the table; draws.

    Runs are ordinary trainings in `<output_dir>/<model>/<seed>`, which go on
    where they were interrupted.

    Args:
      settings: `settings.Settings`.
      own: dict from model to flags, see `settings.own_flags`.

    Raises:
      UserError: for settings that do not work, or that are not those with
        which the folder's comparison was begun.
    """
    trainings = {n: training(settings, n, own) for n in settings.names(own)}
    folder = make_folder(settings.output_dir)
    with sole_trainer(folder, "--output_dir"):
        models = _all_runs(settings, trainings, folder)
    _report(folder, settings, {name: models[name] for name in trainings})


def _all_runs(settings, trainings, folder):
    """Does the runs; gives what is found of all models by name."""
    found = _Found(folder / JSON_FILE, settings)
    for name, config in trainings.items():
        found.begin(name, config)
    # Seed by seed: an early look compares all models.
    for seed in range(settings.seed, settings.seed + settings.seeds):
        for name, config in trainings.items():
            model = found.models[name]
            if str(seed) in model["runs"]:
                continue
            print(f"{name}, seed {seed}:", flush=True)
            try:
                if model["steps"] is None:
                    model["steps"] = _steps(config, settings.minutes)
                found.write()  # by what the run begins
                run = dataclasses.replace(
                    config,
                    summary_dir=str(folder / name / str(seed)),
                    seed=seed,
                    **_intervals(model["steps"], settings.points),
                )
                program = commit()
                done = in_own_process(train_and_evaluate, run)
                model["runs"][str(seed)] = {"commit": program, **done}
                found.write()
            except UserError as error:
                raise error.of(f"{name}, seed {seed}") from error
    return found.models


def _intervals(steps, points):
    return {
        "max_steps": steps,
        "save_step": math.ceil(steps / points),
        "summary_step": math.ceil(steps / _SUMMARIES),
    }


def _steps(config, minutes):
    """As many training steps as are done in so many minutes."""
    rate = in_own_process(measure_speed, config, _FIRST_STEPS)
    # A longer look, of fast models; of short budgets a small part.
    seconds = min(_SECONDS, _MOST_SHARE * 60 * minutes)
    more = int(rate * seconds)
    if more > _FIRST_STEPS:
        rate = in_own_process(measure_speed, config, more)
    return max(1, round(60 * minutes * rate))


class _Found:
    """What was found so far, and its file.

    Attributes:
      models: dict from name to a dict of flags, steps (None if not known yet)
        and runs by seed.

    Args:
      path: `pathlib.Path` of the file, which may not be there.
      settings: `settings.Settings`.
    """

    def __init__(self, path, settings):
        self._path = path
        self._budget = {"minutes": settings.minutes, "steps": settings.steps}
        self._budget["points"] = settings.points
        self.models = {}
        if path.exists():
            self._read()

    def _read(self):
        try:
            content = json.loads(self._path.read_text())
            budget, self.models = content["budget"], content["models"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"{self._path} does not describe a comparison: {error}"
            ) from error
        if not any(map(self._is_begun, self.models)):
            if budget != self._budget:
                self.models = {}
            return
        for name, before in budget.items():
            if before != self._budget[name]:
                raise UserError(
                    f"{self._path} was begun with --{name}={before}, not "
                    f"{self._budget[name]}: give the same, or name another "
                    "--output_dir"
                )

    def begin(self, name, config):
        """Notes how a model is trained; it must be as before."""
        given = flags.command_line(dataclasses.replace(config, seed=0))
        before = self.models.get(name, {}).get("flags")
        # Of another version they may be in another order.
        if before and sorted(before.split()) == sorted(given.split()):
            return
        if self._is_begun(name):
            if before is None:
                raise UserError(
                    f"{self._path.parent / name} has trainings that "
                    f"{self._path} does not tell of: name another --output_dir"
                )
            raise UserError(
                f"{self._path} was begun with {name} by {before}, not {given}: "
                "give the same, or name another --output_dir"
            )
        steps = self._budget["steps"]
        self.models[name] = {"flags": given, "steps": steps, "runs": {}}

    def _is_begun(self, name):
        """Whether something was trained, and not only asked for."""
        trainings = (self._path.parent / name).glob("*/train")
        known = self.models.get(name, {}).get("runs")
        return bool(known) or any(map(checkpoints.find_all, trainings))

    def write(self):
        """Writes the file."""
        content = {"budget": self._budget, "models": self.models}
        text = json.dumps(content, indent=2) + "\n"
        write_file(self._path, text.encode())


def _report(folder, settings, models):
    budget = (
        f"{settings.minutes:g} min"
        if settings.steps is None
        else f"{settings.steps:,} steps"
    )
    title = f"{settings.dataset_name}, {budget} each"
    print(f"\n{title}:\n{table.as_markdown(table.rows(models))}")
    kind = "validation" if settings.validate else "test"
    drawn = table.pictures(models, title, kind)
    print(*write_files(folder, drawn), sep="\n")
