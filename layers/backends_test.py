import numpy as np
from keras import backend, ops

from layers.backends import use_full_float32


def test_full_float32_on_gpus():
    name = backend.backend()
    if name == "tensorflow":
        from tensorflow.config import experimental

        experimental.enable_tensor_float_32_execution(True)
        use_full_float32()
        assert not experimental.tensor_float_32_execution_enabled()
    elif name == "jax":
        import jax

        square = np.eye(2, dtype="float32")
        use_full_float32()
        program = str(jax.make_jaxpr(ops.matmul)(square, square))
        assert "Precision.HIGHEST" in program
        jax.config.update("jax_default_matmul_precision", None)
