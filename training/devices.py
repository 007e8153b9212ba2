"""Selects the devices of a job and limits their memory.

TensorFlow reads the data under every Keras backend, but uses GPUs only if it is
itself the backend.

On JAX several processes, on one or more machines, can train together. Every
process reads data and checkpoints; only the first prints and writes files.
"""

import contextlib
import ctypes
import os
import subprocess
import sys

import keras
import tensorflow as tf

from common.errors import UserError, reading
from training.several_devices import (
    MirroredDevices,
    ShardedDevices,
    join_processes,
)
from training.strategies import OneDevice

# JAX and torch are imported in functions: other backends work without them.


@contextlib.contextmanager
def use(config):
    """A context that selects devices; enter it before any device is used.

    Yields a `Strategy`. Raises UserError if `config`
    names devices that do not exist or that the backend cannot use.
    """
    backend = keras.backend.backend()
    with reading(variable := "KERAS_DISTRIBUTION_NUM_PROCESSES"):
        num_processes = config.num_processes or int(os.environ.get(variable, 1))
    if config.deterministic:
        if backend != "tensorflow":
            raise UserError("--deterministic needs KERAS_BACKEND=tensorflow")
        tf.config.experimental.enable_op_determinism()
    if config.num_gpus > 1 and backend == "torch":
        raise UserError("--num_gpus needs KERAS_BACKEND=tensorflow or jax")
    if num_processes > 1 and backend != "jax":
        raise UserError(
            f"--num_processes={num_processes} needs KERAS_BACKEND=jax"
        )
    first = int((config.device or "").partition(":")[2] or 0)
    is_cpu = config.device == "cpu"
    indices = range(first, first if is_cpu else first + config.num_gpus)
    strategy, scope = OneDevice(), contextlib.nullcontext()
    if backend == "tensorflow":
        strategy = _use_tensorflow(config, indices)
    else:
        tf.config.set_visible_devices([], "GPU")
        _keep_freed_memory()
        if backend == "jax":
            strategy = _use_jax(config, indices, num_processes)
        else:
            scope = _torch_device(config, indices)
    with scope:
        yield strategy


def _require_gpus(config, available, needed):
    is_asked = config.device or config.gpu_memory_limit or config.num_gpus > 1
    if is_asked and available < needed:
        raise UserError(
            f"--device={config.device or 'gpu'} --num_gpus={config.num_gpus}: "
            f"{keras.backend.backend()} finds {available} GPUs"
        )


def _use_tensorflow(config, indices):
    if not indices:
        tf.config.set_visible_devices([], "GPU")
        if config.num_gpus > 1:
            (cpu,) = tf.config.list_physical_devices("CPU")
            tf.config.set_logical_device_configuration(
                cpu, [tf.config.LogicalDeviceConfiguration()] * config.num_gpus
            )
    else:
        gpus = tf.config.list_physical_devices("GPU")
        _require_gpus(config, len(gpus), indices.stop)
        gpus = gpus[indices.start : indices.stop]
        tf.config.set_visible_devices(gpus, "GPU")
        limit = tf.config.LogicalDeviceConfiguration(config.gpu_memory_limit)
        for gpu in gpus:
            if config.gpu_memory_limit is None:
                tf.config.experimental.set_memory_growth(gpu, True)
            else:
                tf.config.set_logical_device_configuration(gpu, [limit])
    if config.num_gpus == 1:
        return OneDevice()
    kind = "GPU" if indices else "CPU"
    return MirroredDevices(tf.config.list_logical_devices(kind))


def _use_jax(config, indices, num_processes):
    import jax

    if not indices:
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", config.num_gpus)
    else:
        visible = ",".join(map(str, indices))
        jax.config.update("jax_cuda_visible_devices", visible)
        if config.gpu_memory_limit is None:
            os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        else:
            share = config.gpu_memory_limit / _gpu_megabytes()
            os.environ["XLA_CLIENT_MEM_FRACTION"] = str(min(1.0, share))
    if num_processes > 1:
        join_processes(config, num_processes)
    if indices:
        gpus = [d for d in jax.local_devices() if d.platform != "cpu"]
        _require_gpus(config, len(gpus), config.num_gpus)
    return ShardedDevices() if jax.device_count() > 1 else OneDevice()


def _gpu_megabytes():
    """Memory of the largest GPU; JAX knows it only once it has started."""
    command = ["nvidia-smi", "--query-gpu=memory.total"]
    command.append("--format=csv,noheader,nounits")
    with reading("--gpu_memory_limit"):
        return max(map(int, subprocess.check_output(command).split()))


def _torch_device(config, indices):
    import torch

    available = torch.cuda.device_count()
    if indices:
        _require_gpus(config, available, indices.stop)
    if not (indices and available):
        return keras.device("cpu")
    if config.gpu_memory_limit is not None:
        total = torch.cuda.get_device_properties(indices.start).total_memory
        torch.cuda.set_per_process_memory_fraction(
            min(1.0, config.gpu_memory_limit * 2**20 / total), indices.start
        )
    return keras.device(f"gpu:{indices.start}")


def _keep_freed_memory():
    """Lets this process reuse the memory that a step of JAX or torch frees.

    Linux would clear every page again: a quarter of a step of JAX on a CPU.
    """
    library = None if sys.platform == "win32" else ctypes.CDLL(None)
    set_option = getattr(library, "mallopt", None)
    if set_option is not None:  # glibc, see malloc.h
        trim_threshold, mmap_threshold, arena_max = -1, -3, -8
        set_option(arena_max, 1)  # other arenas cannot exceed 64 MB
        set_option(mmap_threshold, 2**30)
        set_option(trim_threshold, 2**31 - 1)
