import keras
import numpy as np
import pytest
from keras import backend, ops

from layers.utils import slice_axis, use_full_float32
from testing.gradients import value_and_gradients

NUMBERS = np.random.default_rng(3).normal(size=(4, 5, 3)).astype("float32")


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


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize(
    ("start", "stop"), [(0, None), (1, None), (0, 2), (0, -1), (1, 2), (1, -1)]
)
def test_slices_equal_those_of_an_index(axis, start, stop):
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


def test_slices_of_an_unknown_batch_have_known_sizes():
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
