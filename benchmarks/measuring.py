"""Flags, timing and tables that the benchmarks share."""

import argparse
import concurrent.futures
import json
import multiprocessing
import pathlib
import statistics
import time

import keras
from keras import ops


def run(measure, defaults, description, arguments=None):
    """Measures, prints a table, and writes it as JSON for --json.

    Args:
      measure: function of the flags, an `argparse.Namespace`; returns rows,
        dicts of equal keys.
      defaults: dict of the flags: a number, a string, False for a switch, or a
        tuple, which "1,2" replaces.
      description: string for --help.
      arguments: list of strings, or None for those of the process.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawTextHelpFormatter
    )
    for name, default in defaults.items():
        if default is False:
            parser.add_argument(f"--{name}", action="store_true")
            continue
        kind = type(default)
        if kind is tuple:
            item = type(default[0])

            def kind(text, item=item):
                return tuple(map(item, text.split(",")))

        parser.add_argument(f"--{name}", type=kind, default=default)
    parser.add_argument("--json", default="", help="file to write")
    flags = parser.parse_args(arguments)
    keras.config.set_dtype_policy(getattr(flags, "policy", "float32"))
    rows = measure(flags)
    show_table(rows)
    if flags.json:
        content = {"flags": vars(flags), "rows": rows}
        pathlib.Path(flags.json).write_text(json.dumps(content, indent=1))


def show_table(rows):
    """Prints dicts of equal keys, one line each."""
    cells = [list(rows[0])]
    cells += [[_text(value) for value in row.values()] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        pairs = zip(line, widths, strict=True)
        print("  ".join(text.rjust(width) for text, width in pairs))


def _text(value):
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return "-" if value is None else str(value)


def in_process(function, *arguments):
    """Calls a function of a module in a new process."""
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, context) as executor:
        return executor.submit(function, *arguments).result()


def alternate(measurements, rounds):
    """Measures in turn, so that all meet the same load of the machine.

    Args:
      measurements: dict from name to a function that returns a number; each is
        called once before.
      rounds: int.

    Returns:
      dict from name to its numbers, one for each round.
    """
    for measure in measurements.values():
        measure()
    numbers = {name: [] for name in measurements}
    order = list(measurements)
    for _ in range(rounds):
        for name in order:
            numbers[name].append(measurements[name]())
        order.reverse()
    return numbers


def median_ratio(numerators, denominators):
    """The median of the ratios within each round."""
    return statistics.median(
        a / b for a, b in zip(numerators, denominators, strict=True)
    )


def training_seconds(model, x, y, batch_size):
    """Seconds of a step, the mean over one epoch of `fit`."""
    clock = _Clock()
    model.fit(x, y, batch_size, shuffle=False, verbose=0, callbacks=[clock])
    return clock.seconds / clock.steps


def inference_seconds(begin, x, y, batch_size):
    """Seconds of a batch, as an evaluation computes it.

    Args:
      begin: as `OneDevice.make_predict_fn` returns it.
      x: dict of arrays.
      y: dict of arrays.
      batch_size: int.
    """
    count = len(next(iter(x.values()))) // batch_size
    parts = [slice(n * batch_size, (n + 1) * batch_size) for n in range(count)]
    predict = begin()
    start = time.perf_counter()
    for part in parts:
        predict(*({k: v[part] for k, v in arrays.items()} for arrays in (x, y)))
    return (time.perf_counter() - start) / count


class _Clock(keras.callbacks.Callback):
    """Seconds from the start of the first step to the last result."""

    def __init__(self):
        super().__init__()
        self.steps = 0

    def on_train_batch_begin(self, batch, logs=None):
        if self.steps == 0:
            self._began = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        self.steps += 1
        self._logs = logs

    def on_train_end(self, logs=None):
        # Accelerators compute asynchronously.
        keras.tree.map_structure(ops.convert_to_numpy, self._logs)
        self.seconds = time.perf_counter() - self._began
