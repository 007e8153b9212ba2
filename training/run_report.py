"""Writes run.json: speed and machine of a training, cost of its network."""

import math
import pathlib
import platform
import re

import keras
import psutil
import tensorflow as tf

from common import commit
from common.files import write_json
from common.flags import command_line
from layers.backends import is_on_cpu


def write(path, config, model, step, clock, best):
    """Writes run.json for a training that has ended at `step`.

    `clock` is the `Clock` of the run, `best` a `best.Evaluation` or None.
    """
    weights, weights_of_decoder = (
        sum(math.prod(w.shape) for w in part.trainable_weights) if part else 0
        for part in (model, model.decoder)
    )
    values = {
        "command": f"python experiment.py {command_line(config)}",
        "commit": commit(),
        "machine": machine(),
        "weights": weights,
        "weights_without_decoder": weights - weights_of_decoder,
        "peak_megabytes": peak_megabytes(),
        "multiply_adds": model.multiply_adds(),
        "steps": step,
        "batch_size": config.batch_size,
        "seconds": clock.seconds,
        "images_per_second": clock.images_per_second,
        "best": best and best._asdict(),
    }
    write_json(path, values)


def peak_megabytes():
    """Peak memory of the GPU, or of this process (on macOS the current one)."""
    if gpu := _gpu():
        return gpu[1] / 1e6
    if peak := _of_linux("/proc/self/status", "VmHWM"):
        return int(peak.split()[0]) * 1024 / 1e6
    memory = psutil.Process().memory_info()
    return getattr(memory, "peak_wset", memory.rss) / 1e6  # of Windows


def machine():
    """Dict of the backend, device, cores and versions."""
    backend = keras.backend.backend()
    gpu, process = _gpu(), psutil.Process()
    cpu = _of_linux("/proc/cpuinfo", "model name") or platform.processor()
    usable = getattr(process, "cpu_affinity", lambda: None)()  # not on macOS
    return {
        "backend": f"{backend} {__import__(backend).__version__}",
        "keras": keras.__version__,
        "device": gpu[0] if gpu else cpu,
        "cores": len(usable) if usable else psutil.cpu_count(),
    }


def _of_linux(path, name):
    """The text after a name and a colon in a file of Linux, else ""."""
    try:
        text = pathlib.Path(path).read_text()
    except FileNotFoundError:  # on macOS and Windows
        return ""
    match = re.search(rf"^{name}\s*:\s*(.*)$", text, re.MULTILINE)
    return match[1] if match else ""


def _gpu():
    """Name of the first GPU and its peak memory in bytes, or None."""
    if is_on_cpu():
        return None
    if keras.backend.backend() != "tensorflow":
        # It imports the other backends, which may be missing.
        from training import other_backends

        return other_backends.first_gpu()
    gpu = tf.config.get_visible_devices("GPU")[0]
    details = tf.config.experimental.get_device_details(gpu)
    memory = tf.config.experimental.get_memory_info("GPU:0")
    return details.get("device_name", "GPU"), memory["peak"]
