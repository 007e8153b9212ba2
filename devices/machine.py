"""What computes, and the memory that it took."""

import os
import pathlib
import platform
import re

import keras

from layers.utils import is_on_cpu


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

        if not is_on_cpu():
            device = keras.ops.convert_to_tensor(0.0).device
            memory = torch.cuda.max_memory_allocated(device)
            return torch.cuda.get_device_name(device), memory
    return None


def _value(text, name):
    """What stands after a name and a colon, "" without."""
    match = re.search(rf"^{name}\s*:\s*(.*)$", text, re.MULTILINE)
    return match[1] if match else ""
