"""The command line of every benchmark: its flags, the machine, its rows."""

import argparse
import json
import pathlib
import signal
import sys

import keras

from benchmarks.networks import Setting
from devices.allocation import keep_freed_memory
from devices.machine import machine
from models.capsule import HParams
from models.hparams import parse_overrides
from old import processes
from old.durable import user_errors
from old.ending import handling_signals, told
from old.fields import meanings, require_known
from training.config import Config

# Flags of the benchmarks of a network: what `setting` reads.
SETTING = {"batch_size": Setting.batch_size, "hparams_override": ""}


def run(measure, defaults, description, arguments=None):
    """Measures what the flags ask for; prints it, and writes it for --json.

    Args:
      measure: function of the flags, an `argparse.Namespace`; gives the rows,
        dicts of equal keys. The policy of a flag `policy` is set before.
      defaults: dict of the flags by their names: a number or a string, False
        for a switch, or a tuple, which "1,2" replaces.
      description: string for --help, printed as it is.
      arguments: list of strings, or None for those of this process.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawTextHelpFormatter
    )
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", **_kind(default))
    parser.add_argument("--json", default="", help="file to write")
    flags = parser.parse_args(arguments)
    for name, default in defaults.items():
        value = getattr(flags, name)
        values = value if isinstance(default, tuple) else (value,)
        if not values:
            parser.error(f"--{name} names nothing")
        if any(type(v) is int and v < 1 for v in values):
            parser.error(f"--{name} must be at least 1")
    keep_freed_memory()
    # As Ctrl-C does it, so that the processes that measure are asked to end.
    interrupt = handling_signals(signal.default_int_handler)
    with told(parser.prog), interrupt:
        if "policy" in defaults:
            require_policy(flags.policy)
            keras.config.set_dtype_policy(flags.policy)
        # This process may leave all of a GPU's memory to others.
        computed_on = processes.in_own_process(machine)
        print(", ".join(f"{name}: {v}" for name, v in computed_on.items()))
        rows = measure(flags)
        if not rows:
            sys.exit("nothing was measured")
        show_table(rows)
        if flags.json:
            content = {
                "machine": computed_on,
                "flags": vars(flags),
                "rows": rows,
            }
            text = json.dumps(content, indent=2) + "\n"
            with user_errors(f"--json={flags.json}"):
                pathlib.Path(flags.json).write_text(text)


def require_policy(name):
    """Raises UserError unless it is the name of a policy of number types."""
    *_, meaning = meanings(Config)["dtype_policy"]
    require_known("policy", name, meaning.choices)


def _kind(default):
    if default is False:
        return {"action": "store_true"}
    kind = type(default)
    if kind is tuple:
        item = type(default[0])

        def kind(text):
            return tuple(map(item, filter(None, text.split(","))))

    return {"type": kind, "default": default, "help": f"default: {default}"}


def setting(flags, **others):
    """The `Setting` that the flags of `SETTING` ask for, and `others`."""
    hparams = HParams(**parse_overrides(HParams, flags.hparams_override))
    batch_size = others.pop("batch_size", flags.batch_size)
    return Setting(hparams=hparams, batch_size=batch_size, **others)


def varied(defaults, flags):
    """A case of the defaults, and each that differs from it in one number.

    Args:
      defaults: dict from name to number.
      flags: those of these names have the numbers to vary; where they do not
        name the default, their first takes its place.

    Returns:
      List of dicts from name to number.
    """
    values = {name: getattr(flags, name) for name in defaults}
    default = {
        name: number if number in values[name] else values[name][0]
        for name, number in defaults.items()
    }
    return [default] + [
        {**default, name: number}
        for name in defaults
        for number in values[name]
        if number != default[name]
    ]


def show_table(rows):
    """Prints dicts of equal keys, one line each, floats with 3 digits."""
    cells = [list(rows[0])]
    cells += [[_text(value) for value in row.values()] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        pairs = zip(line, widths, strict=True)
        print("  ".join(text.rjust(width) for text, width in pairs))


def _text(value):
    if value is None:
        return "-"
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
