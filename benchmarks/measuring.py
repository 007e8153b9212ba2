"""What benchmarks share: timing blocks of steps, memory, processes, tables."""

import json
import multiprocessing
import os
import pathlib
import platform
import statistics
import time

import keras
from keras import ops


def training_seconds(model, x, y, batch_size):
    """Seconds for each step of one pass of `fit` over the examples."""
    clock = _Clock()
    model.fit(x, y, batch_size, shuffle=False, verbose=0, callbacks=[clock])
    return clock.seconds / clock.steps


def inference_seconds(model, x, batch_size):
    """Seconds for each batch of one pass of `predict` over the examples."""
    clock = _Clock()
    model.predict(x, batch_size, verbose=0, callbacks=[clock])
    return clock.seconds / clock.steps


class _Clock(keras.callbacks.Callback):
    """From the begin of the first step to when the last result is there."""

    def __init__(self):
        super().__init__()
        self.seconds = None
        self.steps = 0
        self._began = None
        self._result = None

    def on_train_batch_begin(self, batch, logs=None):
        if self._began is None:
            self._began = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        self.steps += 1
        self._result = logs

    def on_train_end(self, logs=None):
        # Accelerators may still be computing: wait for the last step.
        keras.tree.map_structure(ops.convert_to_numpy, self._result)
        self.seconds = time.perf_counter() - self._began

    on_predict_batch_begin = on_train_batch_begin
    on_predict_batch_end = on_train_batch_end
    on_predict_end = on_train_end


def alternate(measurements, rounds):
    """Measures in turn, so that all meet the same machine.

    Args:
      measurements: dict from name to a function that gives a number. Each is
        called once before.
      rounds: int.

    Returns:
      dict from name to the list of its numbers, one for each round.
    """
    for measure in measurements.values():
        measure()
    found = {name: [] for name in measurements}
    order = list(measurements)
    for _ in range(rounds):
        for name in order:
            found[name].append(measurements[name]())
        order.reverse()
    return found


def median_ratio(numerators, denominators):
    """The median of the ratios of the same rounds."""
    return statistics.median(
        a / b for a, b in zip(numerators, denominators, strict=True)
    )


def in_own_process(function, *arguments):
    """What a function of a module gives in a process that ends with it."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def peak_megabytes():
    """The most memory that the GPU gave this process, or else it has had."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        if tf.config.list_logical_devices("GPU"):
            info = tf.config.experimental.get_memory_info("GPU:0")
            return info["peak"] / 1e6
    elif backend == "jax":
        import jax

        statistics_of_gpu = jax.local_devices()[0].memory_stats()
        if statistics_of_gpu:
            return statistics_of_gpu["peak_bytes_in_use"] / 1e6
    else:
        import torch

        if torch.cuda.is_available():
            return torch.cuda.max_memory_allocated() / 1e6
    status = pathlib.Path("/proc/self/status").read_text()
    (line,) = (s for s in status.splitlines() if s.startswith("VmHWM"))
    return int(line.split()[1]) * 1024 / 1e6


def machine():
    """What computed: backend, device, processor and versions, as a dict."""
    backend = keras.backend.backend()
    version = __import__(backend).__version__
    return {
        "backend": f"{backend} {version}",
        "keras": keras.__version__,
        "device": _device(backend),
        "cores": len(os.sched_getaffinity(0)),
    }


def _device(backend):
    if backend == "tensorflow":
        import tensorflow as tf

        gpus = tf.config.list_physical_devices("GPU")
        if gpus:
            details = tf.config.experimental.get_device_details(gpus[0])
            return details.get("device_name", "GPU")
    elif backend == "jax":
        import jax

        if jax.default_backend() != "cpu":
            return jax.local_devices()[0].device_kind
    else:
        import torch

        if torch.cuda.is_available():
            return torch.cuda.get_device_name()
    info = pathlib.Path("/proc/cpuinfo").read_text()
    for line in info.splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


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


def write_json(path, rows, **more):
    """Writes the rows, the machine and what else the benchmark knows."""
    content = {**more, "rows": rows}
    pathlib.Path(path).write_text(json.dumps(content, indent=2) + "\n")
