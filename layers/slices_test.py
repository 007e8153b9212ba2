import keras
import numpy as np
import pytest
from keras import ops

from layers.slices import part
from testing.gradients import value_and_gradients

NUMBERS = np.random.default_rng(3).normal(size=(4, 5, 3)).astype("float32")


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
        lambda numbers: part(numbers, axis, start, stop), [NUMBERS], cotangent
    )
    np.testing.assert_array_equal(value, expected)
    np.testing.assert_array_equal(gradients[0], gradient)


def test_all_of_an_axis_is_no_operation():
    numbers = ops.convert_to_tensor(NUMBERS)
    assert part(numbers, 1, stop=5) is numbers


def test_sizes_are_known_though_the_batch_is_not():
    inputs = keras.Input((5, 3))
    layer = keras.layers.Lambda(
        lambda x: part(part(x, 0, stop=-1), 1, start=1, stop=-1)
    )
    outputs = layer(inputs)
    assert outputs.shape == (None, 3, 3)
    np.testing.assert_array_equal(
        keras.Model(inputs, outputs).predict(NUMBERS, verbose=0),
        NUMBERS[:-1, 1:-1],
    )
