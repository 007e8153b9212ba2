"""Command line, table and measurements of the benchmarks."""

import argparse
import concurrent.futures
import json
import multiprocessing
import pathlib
import statistics
import time

from keras import ops

from config import Config
from training import devices
from training.record import machine, peak_megabytes


def run(measure, defaults, description, arguments=None):
    """Prints the rows of `measure(flags)` as a table; --json=FILE writes them.

    Defaults are numbers, strings, False or tuples, which --flag=1,2 replaces.
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
    cells = [list(rows[0]), *(list(map(_text, r.values())) for r in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        print(*map(str.rjust, line, widths), sep="  ")
    if flags.json:
        document = {"machine": computer, "flags": vars(flags), "rows": rows}
        pathlib.Path(flags.json).write_text(json.dumps(document, indent=2))


def _reader(default):
    if not isinstance(default, tuple):
        return type(default)
    item = type(default[0])
    return lambda text: tuple(item(part) for part in text.split(","))


def _text(value):
    if not isinstance(value, float):
        return "-" if value is None else str(value)
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def in_own_process(function, *arguments):
    """Calls a function in a new process that has selected its devices."""
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, context) as pool:
        return pool.submit(_call, function, arguments).result()


def _call(function, arguments):
    with devices.use(Config()):
        return function(*arguments)


def alternate(make_step, cases, flags):
    """Dict from case to the seconds of a step in each of `flags.rounds`.

    `make_step(case, flags)` returns a function that computes one step. Blocks
    of `flags.steps` steps alternate, so that all cases meet the same load.
    """
    steps = {case: make_step(case, flags) for case in cases}
    for step in steps.values():
        step()  # traces and compiles
    seconds = {case: [] for case in cases}
    for number in range(flags.rounds):
        for case in cases[:: -1 if number % 2 else 1]:
            start = time.perf_counter()
            for _ in range(flags.steps):
                steps[case]()
            seconds[case].append((time.perf_counter() - start) / flags.steps)
    return seconds


def peak(make_step, case, flags):
    """Megabytes that this process has needed after a few steps of a case."""
    step = make_step(case, flags)
    for _ in range(3):
        step()
    return peak_megabytes()


def speed_ratio(seconds, case, other):
    """Median of the speed of a case relative to another; None without it."""
    if other not in seconds:
        return None
    pairs = zip(seconds[other], seconds[case], strict=True)
    return statistics.median(a / b for a, b in pairs)


def mean_square(_, outputs):
    """A loss [B] of outputs [B, h, w, C], without labels."""
    return ops.mean(ops.square(ops.cast(outputs, "float32")), axis=(1, 2, 3))
