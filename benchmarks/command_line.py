"""What the command lines of several benchmarks share: flags and results."""

import argparse

from benchmarks import measuring
from benchmarks.networks import Setting
from models.capsule import HParams
from models.hparams import parse_overrides


def make_parser(description, steps, rounds):
    """A parser that knows --steps, --rounds and --json.

    Args:
      description: string, printed as it is.
      steps: int, the steps of a block if no flag says otherwise.
      rounds: int, the blocks if no flag says otherwise.

    Returns:
      `argparse.ArgumentParser`.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=steps, help="of a block")
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--json", help="file to write")
    return parser


def add_setting(parser):
    """Adds the flags that `setting` reads."""
    parser.add_argument("--batch_size", type=int, default=Setting.batch_size)
    parser.add_argument("--hparams_override", default="")


def setting(arguments):
    """The `Setting` that the flags ask for."""
    return Setting(
        hparams=HParams(**parse_overrides(HParams, arguments.hparams_override)),
        batch_size=arguments.batch_size,
    )


def numbers(text):
    """Reads "1,2,4"; nothing gives no number."""
    return tuple(int(number) for number in filter(None, text.split(",")))


def show_machine(machine):
    """Prints what `measuring.machine` gives, in one line."""
    print(", ".join(f"{name}: {value}" for name, value in machine.items()))


def report(rows, machine, arguments):
    """Prints the table, and writes it if --json asks for it.

    Args:
      rows: list of dicts of equal keys.
      machine: what `measuring.machine` gave.
      arguments: the flags, which the file records.
    """
    measuring.show_table(rows)
    if arguments.json:
        flags = {**vars(arguments)}
        del flags["json"]
        measuring.write_json(arguments.json, rows, machine=machine, flags=flags)
