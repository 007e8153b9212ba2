"""What benchmarks share: timing blocks of steps, processes, memory."""

import multiprocessing
import os
import pathlib
import platform
import re
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
    """Seconds for each batch of one pass of `predict`."""
    clock = _Clock()
    model.predict(x, batch_size, verbose=0, callbacks=[clock])
    return clock.seconds / clock.steps


def timed(function, *arguments):
    """A function that gives the seconds that one call takes."""

    def seconds():
        start = time.perf_counter()
        function(*arguments)
        return time.perf_counter() - start

    return seconds


def evaluation_seconds(predictor, x, y, batch_size):
    """Seconds for each batch of one pass, as an evaluation computes them.

    Args:
      predictor: as `devices.parallel.OneDevice.predictor` gives it.
      x: dict of arrays.
      y: dict of arrays.
      batch_size: int.
    """
    count = len(next(iter(x.values()))) // batch_size
    parts = [slice(n * batch_size, (n + 1) * batch_size) for n in range(count)]
    predict = predictor()
    start = time.perf_counter()
    for part in parts:
        predict(*({k: v[part] for k, v in arrays.items()} for arrays in (x, y)))
    return (time.perf_counter() - start) / count


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
    gpu = _gpu()
    if gpu is not None:
        return gpu[1] / 1e6
    status = pathlib.Path("/proc/self/status").read_text()
    return int(_value(status, "VmHWM").split()[0]) * 1024 / 1e6


def machine():
    """What computed: backend, device, processor and versions, as a dict."""
    backend = keras.backend.backend()
    gpu = _gpu()
    info = pathlib.Path("/proc/cpuinfo").read_text()
    cpu = _value(info, "model name") or platform.processor()
    return {
        "backend": f"{backend} {__import__(backend).__version__}",
        "keras": keras.__version__,
        "device": cpu if gpu is None else gpu[0],
        "cores": len(os.sched_getaffinity(0)),
    }


def _gpu():
    """Name of the first GPU and the most bytes it has given, None without."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        if tf.config.list_logical_devices("GPU"):
            gpu = tf.config.list_physical_devices("GPU")[0]
            details = tf.config.experimental.get_device_details(gpu)
            memory = tf.config.experimental.get_memory_info("GPU:0")
            return details.get("device_name", "GPU"), memory["peak"]
    elif backend == "jax":
        import jax

        device = jax.local_devices()[0]
        if device.platform != "cpu":
            memory = device.memory_stats()
            return device.device_kind, memory["peak_bytes_in_use"]
    else:
        import torch

        if torch.cuda.is_available():
            memory = torch.cuda.max_memory_allocated()
            return torch.cuda.get_device_name(), memory
    return None


def _value(text, name):
    """What stands after a name and a colon, "" without."""
    match = re.search(rf"^{name}\s*:\s*(.*)$", text, re.MULTILINE)
    return match[1] if match else ""
