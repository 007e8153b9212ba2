"""Which devices a job computes on, and how much of their memory it takes.

TensorFlow reads the data under every Keras backend; under the others it must
leave the GPUs alone.
"""

import contextlib
import os
import subprocess

import keras
import tensorflow as tf

from devices.allocation import keep_freed_memory
from old.errors import UserError


@contextlib.contextmanager
def computing_on(settings):
    """A context for all that a job computes; must run before a device is used.

    Args:
      settings: `devices.Settings`.

    Raises:
      UserError: if there are no such devices.
    """
    backend = keras.backend.backend()
    if settings.deterministic and backend != "tensorflow":
        raise UserError(
            f"--deterministic needs KERAS_BACKEND=tensorflow; it is {backend}"
        )
    indices = _gpu_indices(settings)
    if settings.gpu_memory_limit is not None and indices is None:
        raise UserError("--gpu_memory_limit needs a GPU, but --device=cpu")
    choose = {"tensorflow": _choose_on_tensorflow, "jax": _choose_on_jax}.get(
        backend, _choose_on_torch
    )
    if backend != "tensorflow":
        _hide_gpus_from_tensorflow()
    keep_freed_memory()
    with choose(settings, indices) or contextlib.nullcontext():
        if settings.deterministic:
            tf.config.experimental.enable_op_determinism()
        yield


def _gpu_indices(settings):
    """The GPUs to use if there are any; None for CPUs."""
    if settings.device == "cpu":
        return None
    _, _, number = (settings.device or "").partition(":")
    first = int(number or 0)
    return range(first, first + settings.num_gpus)


def require_gpus(settings, found, needed):
    """Raises UserError if GPUs were asked for that are not there.

    Args:
      settings: `devices.Settings`.
      found: int, how many there are.
      needed: int, how many there must be.
    """
    asked = {
        "device": settings.device,
        "num_gpus": settings.num_gpus if settings.num_gpus > 1 else None,
        "gpu_memory_limit": settings.gpu_memory_limit,
    }
    wanted = [f"--{name}={v}" for name, v in asked.items() if v is not None]
    if wanted and found < needed:  # else the CPU will do
        raise UserError(
            f"{' '.join(wanted)}, but {keras.backend.backend()} finds {found} "
            f"GPU{'' if found == 1 else 's'} here"
        )


def _hide_gpus_from_tensorflow():
    tf.config.set_visible_devices([], "GPU")


def _choose_on_tensorflow(settings, indices):
    if indices is None:
        _hide_gpus_from_tensorflow()
        if settings.num_gpus > 1:
            (cpu,) = tf.config.list_physical_devices("CPU")
            tf.config.set_logical_device_configuration(
                cpu,
                [tf.config.LogicalDeviceConfiguration()] * settings.num_gpus,
            )
        return
    gpus = tf.config.list_physical_devices("GPU")
    require_gpus(settings, len(gpus), indices.stop)
    gpus = gpus[indices.start : indices.stop]
    tf.config.set_visible_devices(gpus, "GPU")
    for gpu in gpus:
        if settings.gpu_memory_limit is None:
            tf.config.experimental.set_memory_growth(gpu, True)
        else:
            limit = tf.config.LogicalDeviceConfiguration(
                memory_limit=settings.gpu_memory_limit
            )
            tf.config.set_logical_device_configuration(gpu, [limit])


def _choose_on_jax(settings, indices):
    import jax

    if indices is None:
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", settings.num_gpus)
        return
    # JAX reserves memory on every GPU that it sees. Whether there are enough
    # is known after a cluster is joined: `parallel.make` looks.
    jax.config.update("jax_cuda_visible_devices", ",".join(map(str, indices)))
    if settings.gpu_memory_limit is None:
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    else:
        # JAX takes a share, and counts GPUs only by starting them.
        memory = _gpu_memory()
        require_gpus(settings, len(memory), indices.stop)
        total = min(memory[indices.start : indices.stop])
        os.environ["XLA_CLIENT_MEM_FRACTION"] = str(
            min(1.0, settings.gpu_memory_limit / total)
        )


def _gpu_memory():
    """Megabytes of each GPU that may be used, by NVIDIA's tool."""
    command = ["nvidia-smi", "--query-gpu=memory.total"]
    command.append("--format=csv,noheader,nounits")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        command.append(f"--id={visible}")
    try:
        output = subprocess.run(
            command, capture_output=True, check=True, text=True
        ).stdout
        return [int(line) for line in output.split()]
    except (OSError, subprocess.CalledProcessError, ValueError):
        return []  # none, or GPUs without a memory of their own


def _choose_on_torch(settings, indices):
    import torch

    if indices is None:
        return keras.device("cpu")
    found = torch.cuda.device_count()
    require_gpus(settings, found, indices.stop)
    if found <= indices.start:
        return None
    if settings.gpu_memory_limit is not None:
        total = torch.cuda.get_device_properties(indices.start).total_memory
        torch.cuda.set_per_process_memory_fraction(
            min(1.0, settings.gpu_memory_limit * 2**20 / total), indices.start
        )
    return keras.device(f"gpu:{indices.start}")
