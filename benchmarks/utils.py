"""Command line, table and measurements of the benchmarks."""

import argparse
import concurrent.futures
import json
import multiprocessing
import pathlib
import timeit

import numpy as np
from keras import ops

from config import Config
from runs.pages import markdown
from training import devices
from training.run_report import machine, peak_megabytes


def run(measure, defaults, description, arguments=None):
    """Prints the rows of `measure(flags)` as a table; --json=FILE writes them.

    The flags' defaults are numbers, strings, False or tuples (--flag=1,2).
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawTextHelpFormatter
    )
    for name, default in {**defaults, "json": ""}.items():
        options = {"type": _reader(default), "default": default}
        if default is False:
            options = {"action": "store_true"}
        parser.add_argument(f"--{name}", help=f"default: {default}", **options)
    flags = parser.parse_args(arguments)
    computer = in_own_process(machine)
    print(*(f"{name}: {value}" for name, value in computer.items()), sep=", ")
    rows = list(measure(flags))
    table = [row.values() for row in rows]
    print(markdown(list(rows[0]), table, padded=True))
    if flags.json:
        document = {"machine": computer, "flags": vars(flags), "rows": rows}
        pathlib.Path(flags.json).write_text(json.dumps(document, indent=2))


def _reader(default):
    if not isinstance(default, tuple):
        return type(default)
    item = type(default[0])
    return lambda text: tuple(item(part) for part in text.split(","))


def in_own_process(function, *arguments):
    """Calls a function in a new process that has selected its devices."""
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, context) as pool:
        return pool.submit(_call, function, arguments).result()


def _call(function, arguments):
    with devices.use(Config()):
        return function(*arguments)


def alternate(make_step, cases, flags):
    """Measures steps: a dict from case to seconds per step [flags.rounds].

    `make_step(case, flags)` returns a function that computes one step. Blocks
    of `flags.steps` steps alternate, so that all cases meet the same load.
    """
    steps = {case: make_step(case, flags) for case in cases}
    for step in steps.values():
        step()  # traces and compiles
    seconds = {case: np.empty(flags.rounds) for case in cases}
    for number in range(flags.rounds):
        for case in cases[:: -1 if number % 2 else 1]:
            block = timeit.timeit(steps[case], number=flags.steps)
            seconds[case][number] = block / flags.steps
    return seconds


def peak(make_step, case, flags):
    """Peak memory of this process in megabytes, after a few steps of a case."""
    timeit.timeit(make_step(case, flags), number=3)
    return peak_megabytes()


def speed_ratio(seconds, case, other):
    """Median speed relative to another case; None if that did not run."""
    if other not in seconds:
        return None
    return np.median(seconds[other] / seconds[case])


def mean_square(_, outputs):
    """A loss [B] of outputs [B, h, w, C], without labels."""
    return ops.mean(ops.square(ops.cast(outputs, "float32")), axis=(1, 2, 3))
