import functools

import keras
import numpy as np
import pytest

import layers
from testing import numpy_oracle
from testing.gradients import check_layer, value_and_gradients

RNG = np.random.default_rng(17)


@pytest.mark.parametrize("size", [0.0, 1e-30, 1e-12, 1e-6])
def test_small_capsules_have_the_identity_as_gradient(size):
    cotangent = RNG.normal(size=(1, 8))
    value, gradients = value_and_gradients(
        layers.exponential_squash, [np.full((1, 8), size)], cotangent
    )
    np.testing.assert_allclose(value, size, rtol=1e-5)
    np.testing.assert_allclose(gradients[0], cotangent, rtol=1e-4)


@pytest.mark.parametrize("kernel_size", [None, 2, (2, 3)])
def test_depthwise_capsules_equal_loops(kernel_size):
    layer, inputs = layers.DepthwiseCapsule(2, kernel_size), (2, 3, 3, 6)
    oracle = functools.partial(numpy_oracle.depthwise_capsule, atoms=2)
    check_layer(layer, RNG.normal(size=inputs), oracle)
    sizes = {None: (3, 3), 2: (2, 2), (2, 3): (2, 3)}
    assert layer.kernel.shape == (*sizes[kernel_size], 6)


def test_self_attention_equals_loops():
    layer = layers.SelfAttentionCapsule(3, 4)
    inputs = RNG.normal(size=(2, 5, 2))
    oracle = numpy_oracle.self_attention_capsule
    check_layer(layer, inputs, oracle, "attention")


def test_initial_weights():
    keras.utils.set_random_seed(3)
    primary = layers.DepthwiseCapsule(8)
    primary.build((None, 9, 9, 128))
    limit = np.sqrt(6 / (81 * 128 + 81))  # Glorot's for Keras' shape
    kernel, bias = primary.get_weights()
    assert 0.98 * limit < np.abs(kernel).max() <= limit
    np.testing.assert_array_equal(bias, 0.0)
    classes = layers.SelfAttentionCapsule(10, 16)
    classes.build((None, 16, 8))
    kernel, biases = classes.get_weights()
    assert kernel.std() == pytest.approx(np.sqrt(2 / (10 * 16 * 8)), rel=0.03)
    np.testing.assert_array_equal(biases, 0.0)
