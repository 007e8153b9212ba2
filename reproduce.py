"""Reproduces published results: trains, tests, and writes them down.

  python reproduce.py --list
  python reproduce.py mnist-3 --seeds=0,1,2 --data_dir=DATA --work_dir=WORK
  python reproduce.py --table

An argument is an experiment's name; `all` stands for all whose data are there.
A run that is written down is not done again, and one that was interrupted goes
on by the same command. --data_dir has a folder for each data set, named as
--dataset names it (mnist, cifar10, norb, svhn, affnist). --table makes
docs/results.md, its picture and the README's short table from the files in
--output_dir.
"""

import pathlib

from absl import app, flags

import old.flags
from old.ending import interrupted_by_signals, told
from old.errors import UserError
from old.fields import did_you_mean, meanings, parse
from old.startup import load_backend
from old.tables import between
from old.text import shortened
from reproduction.experiments import EXPERIMENTS
from training.config import Config

ROOT = pathlib.Path(__file__).parent
PAGE = ROOT / "docs" / "results.md"
README = ROOT / "README.md"
ALL = "all"
# The picture of errors by epoch, of the paper's network.
PICTURE_OF = ["mnist-3", "mnist-3-muon"]
PICTURE = ROOT / "docs" / "figures" / "errors_by_epoch.png"


def define_flags():
    """Defines the flags: of this command, so when it runs as one."""
    flags.DEFINE_integer(
        "batch_size",
        None,
        "Images in a training batch; there are as many fewer steps as it is "
        "larger, and rates stay. Default: the experiment's. A GPU is filled by "
        "1024 or more.",
        lower_bound=1,
        upper_bound=meanings(Config)["batch_size"][2].at_most,
    )
    flags.DEFINE_string("data_dir", None, "Folder with a folder per data set.")
    flags.DEFINE_enum(
        "dtype_policy",
        None,
        meanings(Config)["dtype_policy"][2].choices,
        "Precision of the layers' arithmetic. Default: the experiment's. With "
        "mixed_bfloat16 a CPU that multiplies in it is faster.",
    )
    flags.DEFINE_bool("list", False, "Whether to list the experiments.")
    flags.DEFINE_string(
        "output_dir",
        str(ROOT / "docs" / "results"),
        "Folder for a JSON file for each run.",
    )
    flags.DEFINE_list("seeds", ["0"], "Seeds, separated by commas.")
    flags.DEFINE_bool(
        "table", False, "Whether to write the tables from the files."
    )
    flags.DEFINE_string("work_dir", None, "Folder for the trainings.")


def run(names, seeds, output_dir, **of_machine):
    """Does experiments.

    Args:
      names: list of strings.
      seeds: list of ints.
      output_dir: path of the folder for results.
      **of_machine: attributes of a `reproduction.run.Machine`.

    Raises:
      UserError: for a name or settings that do not work, or data that are
        missing: of `all` experiments, those without data are left out.
      Interrupted: after a signal.
    """
    experiments = find(names)
    folders = {**of_machine, "output_dir": output_dir}
    for name in ("data_dir", "work_dir", "output_dir"):
        if not folders[name]:
            raise UserError(f"--{name} is required")
    load_backend()
    from reproduction.run import Machine, missing_data, read, reproduce

    machine = Machine(**of_machine)
    for experiment in list(experiments):
        done, _ = read(output_dir, experiment)
        missing = missing_data(experiment, machine)
        if missing and not set(seeds) <= set(done):
            needs = (
                f"{experiment.name} needs the folder {' and '.join(missing)}"
            )
            if ALL not in names:
                raise UserError(f"{needs}, in which there are its data")
            print(f"Left out: {needs}")
            experiments.remove(experiment)
    with interrupted_by_signals():
        for experiment in experiments:
            reproduce(experiment, seeds, machine, output_dir)


def find(names):
    """The experiments of some names.

    Raises:
      UserError: for a name that is unknown.
    """
    for name in names:
        if name not in (ALL, *EXPERIMENTS):
            raise UserError(
                f"unknown experiment {name!r}"
                f"{did_you_mean(name, EXPERIMENTS)}; --list shows them"
            )
    return [EXPERIMENTS[n] for n in (EXPERIMENTS if ALL in names else names)]


def seeds_of(texts):
    """Seeds as numbers.

    Raises:
      UserError: for what is none.
    """
    try:
        seeds = [parse(int, text) for text in texts]
    except ValueError:
        seeds = []
    _, _, meaning = meanings(Config)["seed"]
    if not seeds or not all(map(meaning.allows, seeds)):
        raise UserError(
            f"--seeds={shortened(','.join(texts))} must be numbers such as "
            f"0,1,2, each {meaning.allowed}"
        )
    return list(dict.fromkeys(seeds))


def list_experiments():
    """Prints all experiments: name, what it is, and the published error."""
    width = max(map(len, EXPERIMENTS))
    for name, experiment in EXPERIMENTS.items():
        print(f"{name:{width}}  {experiment.title}: {experiment.figure()}")


def tables(output_dir):
    """Dict from a document to what stands in it between the marks."""
    from reproduction import report

    text = f"{report.table(output_dir)}\n\n{report.commands()}"
    return {PAGE: text, README: report.short_table(output_dir)}


def write_tables(output_dir):
    """Writes the page, the README's table and the picture.

    Raises:
      UserError: for a folder without results.
    """
    load_backend()
    from old.durable import write_file
    from reproduction import report
    from reproduction.run import read

    if not any(read(output_dir, e)[0] for e in EXPERIMENTS.values()):
        raise UserError(f"--output_dir={output_dir} has no results")
    for document, text in tables(output_dir).items():
        found = between(document.read_text(), "results", text)
        write_file(document, found.encode())
    png = report.picture(output_dir, PICTURE_OF)
    if png is not None:
        write_file(PICTURE, png)


def main(argv):
    """Does what the arguments say; a user's error is one line and exit 1."""
    values = flags.FLAGS
    names = argv[1:]
    if not (names or values.list or values.table):
        raise app.UsageError("name experiments, or give --list or --table")
    with told("reproduce.py"):
        if values.list:
            list_experiments()
        if names:
            run(
                names,
                seeds_of(values.seeds),
                values.output_dir,
                batch_size=values.batch_size,
                data_dir=values.data_dir,
                dtype_policy=values.dtype_policy,
                work_dir=values.work_dir,
            )
        if values.table:
            write_tables(values.output_dir)


if __name__ == "__main__":
    define_flags()
    app.run(main, flags_parser=old.flags.parse_or_explain)
