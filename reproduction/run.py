"""One run of an experiment: trained, tested, and written down as JSON."""

import dataclasses
import functools
import json
import math
import os
import pathlib
import re
import shlex

from comparison.run import train_and_evaluate
from experiment import run as run_command
from input_data.features import OF_FILES
from old import flags
from old.durable import make_folder, write_file
from old.errors import UserError
from old.fields import as_text, meanings
from old.processes import in_own_process
from old.version import commit
from training.config import Config

ENSEMBLE = "ensemble"
# Training images between two tests: an epoch of MNIST.
EPOCH = 60_000
_MOST_TESTS = 40
# What tables and pictures show of a run, beside its counts.
_FACTS = (
    *("batch_size", "command", "machine", "points", "steps"),
    "training_seconds",
)


@dataclasses.dataclass(frozen=True)
class Machine:
    """What depends on the machine: its folders, and what is fast on it.

    Attributes:
      data_dir: path of a folder with a folder for each data set.
      work_dir: path of a folder for trainings.
      batch_size: int, or None for the experiment's; with more there are fewer
        steps, of as many images, and so for hyper-parameters that are steps.
      dtype_policy: string, or None for the experiment's.
    """

    data_dir: str = "$DATA_DIR"
    work_dir: str = "$WORK_DIR"
    batch_size: int | None = None
    dtype_policy: str | None = None

    def elsewhere(self):
        """The same with names for the folders, as for commands of others."""
        return Machine(
            batch_size=self.batch_size, dtype_policy=self.dtype_policy
        )


def training_of(experiment, seed, machine):
    """The `Config` of the training of one seed.

    Args:
      experiment: `Experiment`.
      seed: int.
      machine: `Machine`.
    """
    config = flags.parse(
        Config,
        [
            f"--dataset={experiment.dataset}",
            f"--hparams_override={experiment.hparams}",
            *shlex.split(experiment.flags),
        ],
    )
    batch_size = machine.batch_size or config.batch_size
    fewer = config.batch_size / batch_size
    steps = math.ceil(experiment.max_steps * fewer)
    return dataclasses.replace(
        config,
        batch_size=batch_size,
        hparams_override=_scaled(config, fewer),
        data_dir=str(pathlib.Path(machine.data_dir, experiment.dataset)),
        dtype_policy=machine.dtype_policy or config.dtype_policy,
        max_steps=steps,
        save_step=_save_step(steps, batch_size),
        summary_step=min(config.summary_step, steps),
        seed=seed,
        summary_dir=str(_work_dir(experiment, machine, seed)),
    )


def _scaled(config, factor):
    """The hyper-parameters' overrides, those in steps scaled."""
    if factor == 1:
        return config.hparams_override
    # What is imported in functions would be loaded first, before it is told
    # how, in the processes of a run.
    from checkpoints.architecture import DEFAULT_MODEL
    from models.hparams import parse_overrides
    from models.registry import model_class

    hparams_class = model_class(config.model or DEFAULT_MODEL).HParams
    given = parse_overrides(hparams_class, config.hparams_override)
    hparams = hparams_class(**given)
    for name in meanings(hparams_class):
        if name.endswith("_steps"):
            given[name] = math.ceil(getattr(hparams, name) * factor)
    return ",".join(f"{name}={as_text(v)}" for name, v in given.items())


def _work_dir(experiment, machine, seed):
    """The folder of a training: one of its own for what machines decide."""
    chosen = [machine.dtype_policy, machine.batch_size]
    parts = [str(part) for part in (*chosen, seed) if part is not None]
    return pathlib.Path(machine.work_dir, experiment.name, *parts)


def _save_step(steps, batch_size):
    """Steps between two tests: an epoch, of long trainings more."""
    epoch = math.ceil(EPOCH / batch_size)
    return min(steps, max(epoch, math.ceil(steps / _MOST_TESTS)))


def command_of(config):
    """The command of experiment.py that a `Config` is."""
    given = flags.command_line(config)
    # What begins with $ is for the shell to fill in.
    given = re.sub(r"'([^' ]*=\$[^' ]*)'", r"\1", given)
    return f"python experiment.py {given}"


def evaluation_of(experiment, seed, evaluation, machine):
    """The `Config` of another test of the network that a training gives."""
    config = training_of(experiment, seed, machine)
    other = flags.parse(
        Config,
        [
            "--train=false",
            f"--checkpoint={checkpoint_of(config)}",
            f"--dataset={config.dataset}",
            f"--dtype_policy={config.dtype_policy}",
            *shlex.split(evaluation.flags),
        ],
    )
    data_dir = str(pathlib.Path(machine.data_dir, other.dataset))
    return dataclasses.replace(other, data_dir=data_dir)


def missing_data(experiment, machine):
    """The folders of data that an experiment needs and that are not there."""
    training = training_of(experiment, 0, machine)
    tests = (
        evaluation_of(experiment, 0, other, machine)
        for other in experiment.others
    )
    folders = dict.fromkeys(config.data_dir for config in (training, *tests))
    return [folder for folder in folders if not os.path.isdir(folder)]


def checkpoint_of(config):
    """The path of the last checkpoint of a training."""
    name = f"model.ckpt-{config.max_steps}"
    return pathlib.Path(config.summary_dir, "train", name)


def reproduce(experiment, seeds, machine, output_dir):
    """Does the runs of an experiment that are not there yet.

    Each writes `<output_dir>/<experiment>/<seed>.json` when it ends; one that
    was interrupted goes on. When all members of a published ensemble are
    there, it is evaluated too.

    Args:
      experiment: `Experiment`.
      seeds: list of ints.
      machine: `Machine`.
      output_dir: path of the folder for results.

    Raises:
      UserError: for data that are missing, or a folder that cannot be
        written.
    """
    folder = make_folder(pathlib.Path(output_dir, experiment.name))
    done, _ = read(output_dir, experiment)
    for seed in seeds:
        path = folder / f"{seed}.json"
        if seed in done:
            print(f"{path} is there, by: {done[seed].get('command')}")
        else:
            print(f"{experiment.name}, seed {seed}:", flush=True)
            _write(path, _run(experiment, seed, machine))
    path = folder / f"{ENSEMBLE}.json"
    members = [folder / f"{n}.json" for n in range(experiment.members)]
    are_there = all(member.exists() for member in members)
    if experiment.members > 1 and are_there and not path.exists():
        checkpoints = _ensemble(experiment, machine).members
        missing = [c for c in checkpoints if not os.path.isdir(c)]
        if missing:
            print(f"{experiment.name}: no ensemble without {missing}")
        else:
            program = commit()
            of_machine = functools.partial(_ensemble, experiment)
            ensemble = _evaluated(of_machine, machine)
            _write(path, {"commit": program, **ensemble})


def _run(experiment, seed, machine):
    config = training_of(experiment, seed, machine)
    _require_same_training(config)
    program = commit()
    found = in_own_process(train_and_evaluate, config)
    tests = {
        other.name: functools.partial(evaluation_of, experiment, seed, other)
        for other in experiment.others
    }
    return {
        "experiment": experiment.name,
        "command": command_of(
            training_of(experiment, seed, machine.elsewhere())
        ),
        "commit": program,
        "seed": config.seed,
        "batch_size": config.batch_size,
        "steps": config.max_steps,
        **found,
        "others": {name: _evaluated(t, machine) for name, t in tests.items()},
    }


def _require_same_training(config):
    """Refuses to go on with one of an earlier version of the experiment."""
    import checkpoints
    from checkpoints.architecture import Architecture

    directory = pathlib.Path(config.summary_dir, "train")
    before = checkpoints.newest_sound(directory)
    if before is None:
        return
    there = before.architecture
    asked = Architecture.from_strings(
        there.model, there.shape, there.num_targets, config.hparams_override
    )
    differences = there.training_differences(asked)
    # What an earlier version did not record was as by default.
    then = {**Config().recorded(), **before.training}
    differences += [
        (name, then[name], value)
        for name, value in config.recorded().items()
        if name != OF_FILES and then[name] != value
    ]
    for name, found, now in differences:
        raise UserError(
            f"{before.path} was trained by {name}={found}, this experiment is "
            f"by {now}: name another --work_dir"
        )


def _ensemble(experiment, machine):
    """The `Config` of the test of all members together."""
    config = training_of(experiment, 0, machine)
    folder = _work_dir(experiment, machine, "{}") / "train"
    return Config(
        train=False,
        dataset=config.dataset,
        data_dir=config.data_dir,
        dtype_policy=config.dtype_policy,
        eval_size=config.eval_size,
        checkpoint=str(folder / checkpoint_of(config).name),
        num_trials=experiment.members,
    )


def _evaluated(of_machine, machine):
    """Tests what the `Config` of a machine says, and tells its command."""
    counts = in_own_process(evaluate, of_machine(machine))
    return {"command": command_of(of_machine(machine.elsewhere())), **counts}


def evaluate(config):
    """Tests a checkpoint or an ensemble: a dict for JSON."""
    score = run_command(config)
    return {
        "examples": score.num_examples,
        "wrong": score.wrong,
        "confident": score.confident,
    }


def _write(path, values):
    write_file(path, (json.dumps(values, indent=1) + "\n").encode())
    print(path, flush=True)


def read(output_dir, experiment):
    """The results of an experiment that are there.

    Returns:
      Pair of a dict from seed to what its file says, by seed, and what that of
      the ensemble says, or None.

    Raises:
      UserError: for a file that is not what `reproduce` writes.
    """
    runs, ensemble = {}, None
    for path in pathlib.Path(output_dir, experiment.name).glob("*.json"):
        try:
            values = json.loads(path.read_text())
            100 * values["wrong"] / values["examples"]
            if path.stem == ENSEMBLE:
                ensemble = values
            else:
                _require_facts(values, experiment)
                runs[int(values["seed"])] = values
        except (OSError, ValueError, KeyError, TypeError, ArithmeticError) as e:
            raise UserError(f"{path} is not a result: {e}") from None
    return dict(sorted(runs.items())), ensemble


def _require_facts(values, experiment):
    """Raises ValueError unless all that tables and pictures show is there."""
    missing = [name for name in _FACTS if name not in values]
    tested = values.get("others", ())
    missing += [o.name for o in experiment.others if o.name not in tested]
    if missing:
        raise ValueError(f"it lacks {', '.join(missing)}")
