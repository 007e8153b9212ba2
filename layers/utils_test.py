import keras
import numpy as np
import pytest
from keras import backend, ops

from layers.utils import slice_axis, use_full_float32
from testing.gradients import value_and_gradients

NUMBERS = np.random.default_rng(3).normal(size=(4, 5, 3)).astype("float32")


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


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize(
    ("start", "stop"), [(0, None), (1, None), (0, 2), (0, -1), (1, 2), (1, -1)]
)
def test_value_and_gradient_are_those_of_an_index(axis, start, stop):
    index = (slice(None),) * axis + (slice(start, stop),)
    expected = NUMBERS[index]
    cotangent = expected + 1
    gradient = np.zeros_like(NUMBERS)
    gradient[index] = cotangent
    value, gradients = value_and_gradients(
        lambda numbers: slice_axis(numbers, axis, start, stop),
        [NUMBERS],
        cotangent,
    )
    np.testing.assert_array_equal(value, expected)
    np.testing.assert_array_equal(gradients[0], gradient)


def test_all_of_an_axis_is_no_operation():
    numbers = ops.convert_to_tensor(NUMBERS)
    assert slice_axis(numbers, 1, stop=5) is numbers


def test_sizes_are_known_though_the_batch_is_not():
    inputs = keras.Input((5, 3))
    layer = keras.layers.Lambda(
        lambda x: slice_axis(slice_axis(x, 0, stop=-1), 1, start=1, stop=-1)
    )
    outputs = layer(inputs)
    assert outputs.shape == (None, 3, 3)
    np.testing.assert_array_equal(
        keras.Model(inputs, outputs).predict(NUMBERS, verbose=0),
        NUMBERS[:-1, 1:-1],
    )
