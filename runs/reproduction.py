"""Runs experiments that reproduce published results."""

import csv
import dataclasses
import math
import pathlib
import shlex

from common import commit, flags
from common.errors import UserError
from common.files import make_folder, read_json, sole_process, write_json
from common.flags import field, flag_specs, require_known
from config import Config
from runs import runner

EPOCH = 60_000  # of MNIST: images between two tested checkpoints
_MOST_TESTS = 40
# Flags of evaluations on images that differ from the training images.
OTHER_TESTS = {
    "pairs below each other": "--num_targets=2 --pairs=below",
    "affNIST": "--dataset=affnist --eval_size=10000",
}


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A row of experiments.csv."""

    name: str
    title: str  # data and network
    published: str  # test error in percent, or ""
    source: str  # of the published error
    dataset: str
    steps: int
    hparams: str  # --hparams_override
    flags: str  # other flags of experiment.py
    members: int  # size of the published ensemble; its seeds are 0, 1, ..
    other_test: str  # a key of OTHER_TESTS, or ""
    other_published: str
    in_short: str  # whether the README shows it, yes or no

    def published_text(self, error):
        return f"{error} % ({self.source})" if error else "not published"


EXPERIMENTS = {}
_TABLE = pathlib.Path(__file__).with_name("experiments.csv")
with _TABLE.open(encoding="utf-8", newline="") as file:
    for row in csv.DictReader(file):
        numbers = {name: int(row[name]) for name in ("steps", "members")}
        EXPERIMENTS[row["name"]] = Experiment(**{**row, **numbers})


@dataclasses.dataclass(frozen=True)
class ReproduceFlags:
    """The flags of reproduce.py."""

    batch_size: int | None = field(
        None,
        "Images in a training batch. Steps are scaled to keep the number of "
        "training images. Default: the experiment's.",
        at_least=1,
    )
    data_dir: str | None = field(None, "Folder with the data sets' folders.")
    dtype_policy: str | None = field(
        None,
        "Precision of the layers. Default: the experiment's.",
        choices=flag_specs(Config)["dtype_policy"].choices,
    )
    list: bool = field(False, "Whether to list the experiments.")
    output_dir: str = field(
        str(runner.ROOT / "docs" / "results"), "Folder for the results."
    )
    seeds: str = field(
        "0", "Seeds, separated by commas.", pattern="[0-9]+(,[0-9]+)*"
    )
    table: bool = field(
        False, "Whether to write docs/results.md and the README's table."
    )
    work_dir: str | None = field(None, "Folder for the trainings.")


def reproduce(names, settings):
    """Runs the named experiments, except for seeds that have a result.

    The name "all" stands for all experiments with data in `settings.data_dir`.
    """
    for name in names:
        require_known("experiment", name, ["all", *EXPERIMENTS])
    if not (settings.data_dir and settings.work_dir):
        raise UserError("--data_dir and --work_dir are required")
    paths = []
    for name in EXPERIMENTS if "all" in names else names:
        data = pathlib.Path(settings.data_dir, EXPERIMENTS[name].dataset)
        if "all" in names and not data.is_dir():
            print(f"{name}: skipped, {data} does not exist")
        else:
            folder = pathlib.Path(settings.output_dir, name)
            seeds = settings.seeds.split(",")
            paths += [folder / f"{seed}.json" for seed in seeds]
    left = runner.countdown(sum(not path.exists() for path in paths))
    for name in dict.fromkeys(path.parent.name for path in paths):
        folder = make_folder(pathlib.Path(settings.output_dir, name))
        with sole_process(folder, "reproducing"):
            _reproduce(EXPERIMENTS[name], folder, settings, left)


def _reproduce(experiment, folder, settings, left):
    ensemble, members = folder / "ensemble.json", experiment.members
    for seed in map(int, settings.seeds.split(",")):
        path = folder / f"{seed}.json"
        if path.exists():
            print(f"{path} exists; another --output_dir repeats the run")
            continue
        print(f"{experiment.name}, seed {seed} ({next(left)}):", flush=True)
        result = _run(experiment, seed, settings)
        if seed < members:  # the ensemble had another one
            ensemble.unlink(missing_ok=True)
        write_json(path, result)
    is_complete = all((folder / f"{n}.json").exists() for n in range(members))
    if members > 1 and is_complete and not ensemble.exists():
        training = training_config(experiment, "{}", settings)
        config = Config(eval_size=training.eval_size, num_trials=members)
        counts = _evaluate(config, training, training.max_steps, settings)
        write_json(ensemble, {"commit": commit(), **counts})


def _run(experiment, seed, settings):
    training = training_config(experiment, seed, settings)
    result = {
        "experiment": experiment.name,
        "command": _published_command(training, settings),
        "seed": seed,
        "batch_size": training.batch_size,
        "steps": training.max_steps,
        **runner.train_and_evaluate(training),
        "others": {},
    }
    if name := experiment.other_test:
        config = flags.parse(Config, shlex.split(OTHER_TESTS[name]))
        points = []
        for step in [point["step"] for point in result["points"]]:
            counts = _evaluate(config, training, step, settings)
            points.append({"step": step, "wrong": counts["wrong"]})
        result["others"][name] = {**counts, "points": points}
    return result


def training_config(experiment, seed, settings):
    """The `Config` for training an experiment with one seed."""
    config = flags.parse(Config, shlex.split(experiment.flags))
    batch_size = settings.batch_size or config.batch_size
    factor = config.batch_size / batch_size
    steps = math.ceil(experiment.steps * factor)
    save_step = math.ceil(max(EPOCH / batch_size, steps / _MOST_TESTS))
    save_step = min(steps, save_step)
    # Trainings with other batches or another precision have other folders.
    parts = [settings.dtype_policy, settings.batch_size, seed]
    folder = "/".join(str(part) for part in parts if part is not None)
    return dataclasses.replace(
        config,
        dataset=experiment.dataset,
        data_dir=f"{settings.data_dir}/{experiment.dataset}",
        hparams_override=_scaled(config.model, experiment.hparams, factor),
        batch_size=batch_size,
        dtype_policy=settings.dtype_policy or config.dtype_policy,
        max_steps=steps,
        save_step=save_step,
        summary_step=save_step,  # a GPU takes the steps between them in calls
        seed=seed,
        summary_dir=f"{settings.work_dir}/{experiment.name}/{folder}",
    )


def _scaled(model, overrides, factor):
    """The overrides, in which hyper-parameters that count steps are scaled."""
    if factor == 1:
        return overrides
    from models.hparams import parse_overrides
    from models.table import find_model

    hparams_class = find_model(model or "capsule").hparams
    hparams = hparams_class(**parse_overrides(hparams_class, overrides))
    scaled = [
        f"{name}={math.ceil(value * factor)}"
        for name, value in dataclasses.asdict(hparams).items()
        if name.endswith("_steps")
    ]
    return ",".join([overrides, *scaled])


def _evaluate(config, training, step, settings):
    dataset = config.dataset or training.dataset
    config = dataclasses.replace(
        config,
        train=False,
        format="json",
        checkpoint=f"{training.summary_dir}/train/model.ckpt-{step}",
        dataset=dataset,
        data_dir=f"{settings.data_dir}/{dataset}",
        dtype_policy=training.dtype_policy,
    )
    *_, document = runner.run(config)
    return {
        "command": _published_command(config, settings),
        "examples": document["num_examples"],
        "wrong": document["wrong"],
        "confident": document["confident"],
    }


def _published_command(config, settings):
    text = f"python experiment.py {flags.command_line(config)}"
    text = text.replace(f"={settings.data_dir}/", "=$DATA_DIR/")
    return text.replace(f"={settings.work_dir}/", "=$WORK_DIR/")


def read(output_dir, experiment):
    """List of an experiment's results, and that of the ensemble or None."""
    folder = pathlib.Path(output_dir, experiment.name)
    paths = sorted(folder.glob("[0-9]*.json"))
    results = [read_json(path, "result") for path in paths]
    path = folder / "ensemble.json"
    return results, read_json(path, "ensemble") if path.exists() else None
