"""What computes, and how exactly: the fastest way depends on it."""

import functools
import pathlib

from keras import backend, ops


def is_on_cpu() -> bool:
    """Whether layers are computed on CPUs."""
    if backend.backend() == "tensorflow":
        import tensorflow as tf

        return not tf.config.list_logical_devices("GPU")
    if backend.backend() == "jax":
        import jax

        return jax.default_backend() == "cpu"
    import torch

    # Where there is a GPU, `keras.device` may still name the CPU.
    is_there = torch.cuda.is_available()
    return not is_there or ops.convert_to_tensor(0.0).device.type == "cpu"


def is_tensorflow_on_cpu() -> bool:
    """Whether layers are computed by TensorFlow on CPUs.

    What is chosen by this was measured there and is slower, or not measured,
    elsewhere.
    """
    return backend.backend() == "tensorflow" and is_on_cpu()


def is_jax_on_cpu() -> bool:
    """Whether layers are computed by JAX on CPUs."""
    return backend.backend() == "jax" and is_on_cpu()


def is_mirrored() -> bool:
    """Whether TensorFlow computes each batch on several devices."""
    if backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return tf.distribute.has_strategy()


def use_full_float32() -> None:
    """From here on this process multiplies float32 in full on GPUs, too.

    By default TensorFlow and JAX, and torch in convolutions, round the factors
    to the 10 bits of TF32 there.
    """
    if backend.backend() == "tensorflow":
        import tensorflow as tf

        tf.config.experimental.enable_tensor_float_32_execution(False)
    elif backend.backend() == "jax":
        import jax

        jax.config.update("jax_default_matmul_precision", "highest")
    else:
        import torch

        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False


@functools.cache
def cpu_has_bfloat16_products() -> bool:
    """Whether this processor multiplies bfloat16 and adds in float32.

    Where Linux does not name the instructions, it is taken not to.
    """
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return False
    flags = next((line for line in lines if line.startswith("flags")), "")
    return not {"avx512_bf16", "amx_bf16"}.isdisjoint(flags.split())
