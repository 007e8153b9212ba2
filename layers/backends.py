"""Queries and settings of the Keras backend and its devices."""

import functools
import pathlib
import traceback

from keras import backend, ops


def is_on_cpu(backend_name: str | None = None) -> bool:
    """Whether the backend is `backend_name` (None: any) and runs on CPUs."""
    if backend_name not in (None, backend.backend()):
        return False
    if backend.backend() == "tensorflow":
        import tensorflow as tf

        return not tf.config.list_logical_devices("GPU")
    if backend.backend() == "jax":
        import jax

        return jax.default_backend() == "cpu"
    import torch

    # `keras.device` can select the CPU of a machine that has a GPU.
    return (
        not torch.cuda.is_available()
        or ops.convert_to_tensor(0.0).device.type == "cpu"
    )


def is_exporting(to: str = "") -> bool:
    """Whether Keras is exporting a model, to the format `to` if it is given.

    TFLite and ONNX lack expm1 and operations of the Toom-Cook algorithm.
    Keras has no flag for an export, but its export module is in the call stack.
    """
    return any(
        frame.f_globals.get("__name__", "").startswith(f"keras.src.export.{to}")
        for frame, _ in traceback.walk_stack(None)
    )


def adam_moments(optimizer, variable) -> tuple:
    """Adam's first and second moment of a variable; Keras has no getter."""
    index = optimizer._get_variable_index(variable)
    return optimizer._momentums[index], optimizer._velocities[index]


def is_mirrored() -> bool:
    """Whether TensorFlow distributes each batch over several devices."""
    if backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return tf.distribute.has_strategy()


def use_full_float32() -> None:
    """Stops GPUs from rounding float32 factors to 10 mantissa bits (TF32)."""
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
    """Whether the CPU is known to have instructions for bfloat16 products."""
    try:
        words = pathlib.Path("/proc/cpuinfo").read_text().split()
    except OSError:
        return False
    return not {"avx512_bf16", "amx_bf16"}.isdisjoint(words)
