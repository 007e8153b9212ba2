import numpy as np
from keras import backend, ops

from layers.hardware import use_full_float32


def test_full_float32():
    if backend.backend() == "tensorflow":
        import tensorflow as tf

        settings = tf.config.experimental
        before = settings.tensor_float_32_execution_enabled()
        try:
            use_full_float32()
            assert not settings.tensor_float_32_execution_enabled()
        finally:
            settings.enable_tensor_float_32_execution(before)
    elif backend.backend() == "jax":
        import jax

        before = jax.config.jax_default_matmul_precision
        try:
            use_full_float32()
            square = np.eye(2, dtype="float32")
            program = jax.make_jaxpr(ops.matmul)(square, square)
            assert "Precision.HIGHEST" in str(program)
        finally:
            jax.config.update("jax_default_matmul_precision", before)
    else:
        import torch

        before = torch.backends.cudnn.allow_tf32
        try:
            use_full_float32()
            assert torch.get_float32_matmul_precision() == "highest"
            assert not torch.backends.cudnn.allow_tf32
        finally:
            torch.backends.cudnn.allow_tf32 = before
