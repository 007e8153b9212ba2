"""run.json: how a training ran, and on which machine."""

import json
import math
import os
import pathlib
import platform
import re
import shlex
import sys

import keras

from common.files import write_file
from common.startup import commit


def path_of(config):
    """The path of run.json."""
    return pathlib.Path(config.summary_dir) / "run.json"


def write(job, model, seconds, images_per_second):
    """Writes `<summary_dir>/run.json`.

    Args:
      job: `train.Job`.
      model: the trained `models.classifier.Classifier`.
      seconds: float, training time, including that before resumes.
      images_per_second: float, in the last run; None if it had no steps.
    """
    from training.multiply_adds import multiply_adds

    def count(part):
        return sum(math.prod(w.shape) for w in part.trainable_weights)

    weights = count(model)
    decoder = count(model.decoder) if model.decoder is not None else 0
    values = {
        "command": shlex.join(["python", *sys.argv]),
        "commit": commit(),
        "machine": machine(),
        "weights": weights,
        "weights_without_decoder": weights - decoder,
        "peak_megabytes": peak_megabytes(),
        "multiply_adds": multiply_adds(model, job.architecture.shape),
        "steps": job.config.max_steps,
        "batch_size": job.config.batch_size,
        "seconds": seconds,
        "images_per_second": images_per_second,
    }
    write_file(path_of(job.config), json.dumps(values, indent=1) + "\n")


def peak_megabytes():
    """Peak memory of the GPU in use, else of this process (VmHWM)."""
    gpu = _gpu()
    if gpu is not None:
        return gpu[1] / 1e6
    status = pathlib.Path("/proc/self/status").read_text()
    return int(_value(status, "VmHWM").split()[0]) * 1024 / 1e6


def machine():
    """Dict of the backend, device, cores and versions."""
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
    """Name of the first GPU and its peak memory in bytes, or None."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        if tf.config.list_logical_devices("GPU"):
            gpu = tf.config.get_visible_devices("GPU")[0]
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

        device = keras.ops.convert_to_tensor(0.0).device
        if device.type != "cpu":
            memory = torch.cuda.max_memory_allocated(device)
            return torch.cuda.get_device_name(device), memory
    return None


def _value(text, name):
    """The text after a name and a colon; empty if there is none."""
    match = re.search(rf"^{name}\s*:\s*(.*)$", text, re.MULTILINE)
    return match[1] if match else ""
