"""Selects the devices of a job and limits their memory.

TensorFlow reads the data under every Keras backend, but uses GPUs only if it is
itself the backend.

On JAX several processes, on one or more machines, can train together. Every
process reads data and checkpoints; only the first prints and writes files.
"""

import contextlib
import os

import keras
import tensorflow as tf

from common.errors import UserError, user_errors
from training.several_devices import MirroredDevices
from training.strategies import OneDevice


@contextlib.contextmanager
def use(config):
    """A context of a `Strategy`; enter it before any device is used.

    Raises UserError for devices that are missing or not for the backend.
    """
    backend = keras.backend.backend()
    with user_errors(variable := "KERAS_DISTRIBUTION_NUM_PROCESSES"):
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
    if backend == "tensorflow":
        yield _use_tensorflow(config, indices)
        return
    # It imports from this module.
    from training import other_backends

    tf.config.set_visible_devices([], "GPU")
    other_backends.keep_freed_memory()
    if backend == "jax":
        yield other_backends.use_jax(config, indices, num_processes)
    else:
        with other_backends.torch_device(config, indices):
            yield OneDevice()


def require_gpus(config, available, needed):
    """Raises UserError if `config` asks for more GPUs than there are."""
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
        require_gpus(config, len(gpus), indices.stop)
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
