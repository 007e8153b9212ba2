"""Which devices a job computes on, and how much of their memory it takes.

TensorFlow reads the data under every Keras backend; under the others it must
leave the GPUs alone.
"""

import contextlib
import os
import re
import subprocess

import keras
import tensorflow as tf

from common.errors import UserError

# What --device takes.
DEVICE_PATTERN = re.compile(r"cpu|gpu(:\d+)?")


@contextlib.contextmanager
def computing_on(device=None, count=1, gpu_memory_limit=None):
    """A context for all that a job computes; must run before a device is used.

    Args:
      device: string, "cpu", "gpu" or "gpu:2", the first device to use, or
        None for the first GPU if there is one, else the CPU. Several of "cpu"
        are logical devices that share the cores.
      count: int, how many devices.
      gpu_memory_limit: int, megabytes of each GPU, or None for as much as is
        needed (on JAX: without reserving it first).

    Raises:
      UserError: if there are no such devices.
    """
    backend = keras.backend.backend()
    indices = _gpu_indices(device, count)
    if gpu_memory_limit is not None and indices is None:
        raise UserError("--gpu_memory_limit needs a GPU, but --device=cpu")
    if backend == "tensorflow":
        _choose_on_tensorflow(device, indices, count, gpu_memory_limit)
        yield
    elif backend == "jax":
        _hide_gpus_from_tensorflow()
        _choose_on_jax(device, indices, count, gpu_memory_limit)
        yield
    else:
        _hide_gpus_from_tensorflow()
        with _choose_on_torch(device, indices, gpu_memory_limit):
            yield


def _gpu_indices(device, count):
    """The GPUs to use if there are any; None for CPUs."""
    if device == "cpu":
        return None
    first = int(device.removeprefix("gpu:")) if ":" in (device or "") else 0
    return range(first, first + count)


def _require_gpus(found, device, indices, gpu_memory_limit):
    """Raises UserError if GPUs were asked for that are not there."""
    asked = device is not None or len(indices) > 1
    if not asked and gpu_memory_limit is None:
        return  # the CPU will do
    if found <= indices[-1]:
        wanted = [f"--device={device}"] if device is not None else []
        if len(indices) > 1:
            wanted.append(f"--num_gpus={len(indices)}")
        if gpu_memory_limit is not None:
            wanted.append(f"--gpu_memory_limit={gpu_memory_limit}")
        number = "1 GPU" if found == 1 else f"{found} GPUs"
        raise UserError(
            f"{' '.join(wanted)}, but {keras.backend.backend()} finds "
            f"{number} here"
        )


def _hide_gpus_from_tensorflow():
    tf.config.set_visible_devices([], "GPU")


def _choose_on_tensorflow(device, indices, count, gpu_memory_limit):
    if indices is None:
        _hide_gpus_from_tensorflow()
        if count > 1:
            (cpu,) = tf.config.list_physical_devices("CPU")
            tf.config.set_logical_device_configuration(
                cpu, [tf.config.LogicalDeviceConfiguration()] * count
            )
        return
    gpus = tf.config.list_physical_devices("GPU")
    _require_gpus(len(gpus), device, indices, gpu_memory_limit)
    gpus = gpus[indices.start : indices.stop]
    tf.config.set_visible_devices(gpus, "GPU")
    for gpu in gpus:
        if gpu_memory_limit is None:
            tf.config.experimental.set_memory_growth(gpu, True)
        else:
            tf.config.set_logical_device_configuration(
                gpu,
                [
                    tf.config.LogicalDeviceConfiguration(
                        memory_limit=gpu_memory_limit
                    )
                ],
            )


def _choose_on_jax(device, indices, count, gpu_memory_limit):
    import jax

    if indices is None:
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", count)
        return
    # JAX reserves memory on every GPU that it sees. Whether there are enough
    # is known after a cluster is joined: `parallel.make` looks.
    jax.config.update("jax_cuda_visible_devices", ",".join(map(str, indices)))
    if gpu_memory_limit is None:
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    else:
        # JAX takes a share, and counts GPUs only by starting them.
        total = min(_gpu_memory(indices, device, gpu_memory_limit))
        os.environ["XLA_CLIENT_MEM_FRACTION"] = str(
            min(1.0, gpu_memory_limit / total)
        )


def _gpu_memory(indices, device, gpu_memory_limit):
    """Megabytes of each of the GPUs, by NVIDIA's tool."""
    try:
        output = subprocess.run(
            [
                "nvidia-smi",
                "--query-gpu=memory.total",
                "--format=csv,noheader,nounits",
            ],
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        memory = [int(line) for line in output.split()]
    except (OSError, subprocess.CalledProcessError, ValueError):
        memory = []  # none, or GPUs without a memory of their own
    _require_gpus(len(memory), device, indices, gpu_memory_limit)
    return memory[indices.start : indices.stop]


def _choose_on_torch(device, indices, gpu_memory_limit):
    import torch

    if indices is None:
        return keras.device("cpu")
    found = torch.cuda.device_count()
    _require_gpus(found, device, indices, gpu_memory_limit)
    if found <= indices.start:
        return contextlib.nullcontext()
    if gpu_memory_limit is not None:
        properties = torch.cuda.get_device_properties(indices.start)
        torch.cuda.set_per_process_memory_fraction(
            min(1.0, gpu_memory_limit * 2**20 / properties.total_memory),
            indices.start,
        )
    return keras.device(f"gpu:{indices.start}")


def make_deterministic():
    """Makes every operation repeat bit for bit, on GPUs too.

    Raises:
      UserError: if the Keras backend is not TensorFlow.
    """
    if keras.backend.backend() != "tensorflow":
        raise UserError(
            "--deterministic needs KERAS_BACKEND=tensorflow; it is "
            f"{keras.backend.backend()}"
        )
    tf.config.experimental.enable_op_determinism()
