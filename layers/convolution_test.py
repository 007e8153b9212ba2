import itertools

import keras
import numpy as np
import pytest
from keras import ops

from layers.convolution import convolution
from testing.gradients import value_and_gradients

ON_TENSORFLOW = keras.backend.backend() == "tensorflow"
# Strides beyond the kernel leave rows out; SAME then crops instead of padding.
CASES = list(
    itertools.product(
        ["valid", "same"], [1, 2, 3, 4], [(7, 7), (8, 6), (3, 5)], [1, 2, 3]
    )
)


def plain(images, kernel, strides, padding):
    return ops.conv(
        images,
        kernel,
        strides=strides,
        padding=padding,
        data_format="channels_last",
    )


def example(size, kernel_size, strides, padding):
    """Images, kernel, and a gradient of the outputs."""
    generator = np.random.default_rng(3)
    images = generator.normal(size=(2, *size, 2)).astype("float32")
    kernel = generator.normal(size=(kernel_size, kernel_size, 2, 3))
    kernel = kernel.astype("float32")
    shape = plain(images, kernel, strides, padding).shape
    return images, kernel, generator.normal(size=shape).astype("float32")


@pytest.mark.parametrize(
    ("padding", "strides", "size", "kernel_size"),
    CASES if ON_TENSORFLOW else [],
)
def test_kernel_gradient_is_that_of_each_number(
    padding, strides, size, kernel_size
):
    from layers.tensorflow_convolution import kernel_gradient

    images, kernel, gradient = example(size, kernel_size, strides, padding)
    found = kernel_gradient(
        images, gradient, kernel_size, strides, padding.upper()
    )
    # The convolution is linear: its derivative by one number of the kernel is
    # the convolution with a kernel of zeros and a one there.
    expected = np.zeros(kernel.shape)
    for place in np.ndindex(*kernel.shape):
        one = np.zeros_like(kernel)
        one[place] = 1
        outputs = plain(images, one, strides, padding)
        expected[place] = np.sum(ops.convert_to_numpy(outputs) * gradient)
    np.testing.assert_allclose(ops.convert_to_numpy(found), expected, atol=1e-4)


@pytest.mark.parametrize(("padding", "strides", "size", "kernel_size"), CASES)
def test_value_and_gradients_are_those_of_the_plain_convolution(
    padding, strides, size, kernel_size
):
    images, kernel, gradient = example(size, kernel_size, strides, padding)
    results = [
        value_and_gradients(
            lambda images, kernel, f=function: f(
                images, kernel, strides, padding
            ),
            [images, kernel],
            gradient,
        )
        for function in (convolution, plain)
    ]
    (value, gradients), (plain_value, plain_gradients) = results
    np.testing.assert_array_equal(value, plain_value)
    for ours, theirs in zip(gradients, plain_gradients, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)


@pytest.mark.parametrize("padding", ["valid", "same"] if ON_TENSORFLOW else [])
def test_second_derivatives_are_those_of_the_plain_convolution(padding):
    images, kernel, gradient = example((8, 6), 3, 2, padding)

    def image_gradient(function):
        """d/dimages of sum(function * gradient), as a function of both."""
        import tensorflow as tf

        def compute(images, kernel):
            with tf.GradientTape() as tape:
                tape.watch(images)
                outputs = function(images, kernel, 2, padding) ** 2
            return tape.gradient(outputs, images, gradient)

        return compute

    (value, gradients), (plain_value, plain_gradients) = (
        value_and_gradients(
            image_gradient(function), [images, kernel], np.ones_like(images)
        )
        for function in (convolution, plain)
    )
    np.testing.assert_allclose(value, plain_value, atol=1e-4)
    for ours, theirs in zip(gradients, plain_gradients, strict=True):
        assert np.abs(theirs).max() > 1
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-3)
