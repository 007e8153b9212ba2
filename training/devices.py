"""Which devices a job computes on."""

import contextlib

import keras
import tensorflow as tf

from errors import UserError


def limit_memory_growth():
    """Lets TensorFlow take GPU memory as needed, so that two jobs share one.

    Must run before a GPU is used.
    """
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)


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


def strategy_scope(num_gpus, batch_size):
    """A context in which models are built that train on `num_gpus` GPUs.

    With one, that is the GPU if there is one, else the CPU.

    Args:
      num_gpus: int.
      batch_size: int, split evenly over them.

    Raises:
      UserError: if there are not as many, the batch cannot be split, or the
        Keras backend is not TensorFlow.
    """
    if num_gpus == 1:
        return contextlib.nullcontext()
    if keras.backend.backend() != "tensorflow":
        raise UserError(
            f"--num_gpus={num_gpus} needs KERAS_BACKEND=tensorflow; it is "
            f"{keras.backend.backend()}"
        )
    devices = [device.name for device in tf.config.list_logical_devices("GPU")]
    if len(devices) < num_gpus:
        raise UserError(
            f"--num_gpus={num_gpus}, but there are {len(devices)} GPUs"
        )
    if batch_size % num_gpus:
        raise UserError(
            f"--batch_size={batch_size} cannot be split evenly over "
            f"--num_gpus={num_gpus}"
        )
    return tf.distribute.MirroredStrategy(devices[:num_gpus]).scope()
