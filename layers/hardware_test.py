import numpy as np
from keras import backend, ops

from layers.hardware import use_full_float32


def test_full_float32_on_gpus():
    {"tensorflow": on_tensorflow, "jax": on_jax, "torch": on_torch}[
        backend.backend()
    ]()


def on_tensorflow():
    from tensorflow import config

    before = config.experimental.tensor_float_32_execution_enabled()
    try:
        config.experimental.enable_tensor_float_32_execution(True)
        use_full_float32()
        assert not config.experimental.tensor_float_32_execution_enabled()
    finally:
        config.experimental.enable_tensor_float_32_execution(before)


def on_jax():
    import jax

    before = jax.config.jax_default_matmul_precision
    square = np.eye(2, dtype="float32")
    try:
        for precision, is_full in ((None, False), ("highest", True)):
            jax.config.update("jax_default_matmul_precision", None)
            if precision:
                use_full_float32()
            program = str(jax.make_jaxpr(ops.matmul)(square, square))
            assert ("Precision.HIGHEST" in program) == is_full
    finally:
        jax.config.update("jax_default_matmul_precision", before)


def on_torch():
    import torch

    before = torch.get_float32_matmul_precision()
    cudnn = torch.backends.cudnn.allow_tf32
    try:
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True
        use_full_float32()
        assert torch.get_float32_matmul_precision() == "highest"
        assert not torch.backends.cudnn.allow_tf32
    finally:
        torch.set_float32_matmul_precision(before)
        torch.backends.cudnn.allow_tf32 = cudnn
