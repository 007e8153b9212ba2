"""Devices of JAX and torch, and what their steps free."""

import ctypes
import os
import subprocess
import sys

import keras

from common.errors import user_errors
from training.devices import require_gpus
from training.several_devices import ShardedDevices, join_processes
from training.strategies import OneDevice

# JAX and torch are imported in functions: one works without the other.


def use_jax(config, indices, num_processes):
    """The `Strategy` for the GPUs `indices`, or for CPUs."""
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
        require_gpus(config, len(gpus), config.num_gpus)
    return ShardedDevices() if jax.device_count() > 1 else OneDevice()


def _gpu_megabytes():
    """Memory of the largest GPU; JAX knows it only once it has started."""
    command = ["nvidia-smi", "--query-gpu=memory.total"]
    command.append("--format=csv,noheader,nounits")
    with user_errors("--gpu_memory_limit"):
        return max(map(int, subprocess.check_output(command).split()))


def torch_device(config, indices):
    """The `keras.device` of the first of the GPUs `indices`, or the CPU."""
    import torch

    available = torch.cuda.device_count()
    if indices:
        require_gpus(config, available, indices.stop)
    if not (indices and available):
        return keras.device("cpu")
    if config.gpu_memory_limit is not None:
        total = torch.cuda.get_device_properties(indices.start).total_memory
        torch.cuda.set_per_process_memory_fraction(
            min(1.0, config.gpu_memory_limit * 2**20 / total), indices.start
        )
    return keras.device(f"gpu:{indices.start}")


def keep_freed_memory():
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


def first_gpu():
    """Name of the first GPU and its peak memory in bytes."""
    if keras.backend.backend() == "jax":
        import jax

        device = jax.local_devices()[0]
        return device.device_kind, device.memory_stats()["peak_bytes_in_use"]
    import torch

    device = keras.ops.convert_to_tensor(0.0).device
    memory = torch.cuda.max_memory_allocated(device)
    return torch.cuda.get_device_name(device), memory
