import itertools

import keras
import numpy as np
import pytest
from keras import ops

from layers.convolution import convolution
from testing import numpy_oracle
from testing.gradients import value_and_gradients

ON_TENSORFLOW = keras.backend.backend() == "tensorflow"
RNG = np.random.default_rng(3)


def convolution_by_loops(images, kernel, strides, padding):
    """[B, H, W, C], [k, k, C, O] -> [B, h, w, O], tap by tap."""
    size = kernel.shape[0]
    images = np.pad(images, _padding(images, size, strides, padding))
    shape = _num_positions(images, size, strides)
    out = np.zeros((len(images), *shape, kernel.shape[-1]))
    for y, x in np.ndindex(size, size):
        out += images[:, *_seen(y, x, shape, strides)] @ kernel[y, x]
    return out


def gradients_by_loops(images, kernel, cotangent, strides, padding):
    """Those of sum(convolution(images, kernel) * cotangent), tap by tap."""
    size = kernel.shape[0]
    pads = _padding(images, size, strides, padding)
    padded = np.pad(images, pads)
    of_images, of_kernel = np.zeros(padded.shape), np.zeros(kernel.shape)
    for y, x in np.ndindex(size, size):
        seen = (slice(None), *_seen(y, x, cotangent.shape[1:3], strides))
        of_images[seen] += cotangent @ kernel[y, x].T
        of_kernel[y, x] = np.tensordot(
            padded[seen], cotangent, ((0, 1, 2), (0, 1, 2))
        )
    (top, _), (left, _) = pads[1:3]
    height, width = images.shape[1:3]
    return of_images[:, top : top + height, left : left + width], of_kernel


def _padding(images, size, strides, padding):
    if padding == "valid":
        return [(0, 0)] * 4
    sides = [
        numpy_oracle.same_padding(n, size, strides) for n in images.shape[1:3]
    ]
    return [(0, 0), *sides, (0, 0)]


def _num_positions(images, size, strides):
    return tuple((n - size) // strides + 1 for n in images.shape[1:3])


def _seen(y, x, shape, strides):
    """The pixels under tap (y, x) at each of the positions."""
    return tuple(
        slice(start, start + strides * (count - 1) + 1, strides)
        for start, count in zip((y, x), shape, strict=True)
    )


# Strides beyond the kernel leave rows out; SAME then crops instead of padding.
@pytest.mark.parametrize(
    ("padding", "strides", "size", "kernel_size"),
    list(
        itertools.product(
            ["valid", "same"], [1, 2, 3, 4], [(7, 7), (8, 6), (3, 5)], [1, 2, 3]
        )
    ),
)
def test_value_and_gradients_equal_loops(padding, strides, size, kernel_size):
    images = RNG.normal(size=(2, *size, 2))
    kernel = RNG.normal(size=(kernel_size, kernel_size, 2, 3))
    expected = convolution_by_loops(images, kernel, strides, padding)
    cotangent = RNG.normal(size=expected.shape)
    value, gradients = value_and_gradients(
        lambda images, kernel: convolution(images, kernel, strides, padding),
        [images, kernel],
        cotangent,
    )
    np.testing.assert_allclose(value, expected, atol=1e-5)
    expected = gradients_by_loops(images, kernel, cotangent, strides, padding)
    for ours, theirs in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)


@pytest.mark.parametrize("padding", ["valid", "same"] if ON_TENSORFLOW else [])
def test_second_derivatives_are_those_of_the_plain_convolution(padding):
    images = RNG.normal(size=(2, 8, 6, 2)).astype("float32")
    kernel = RNG.normal(size=(3, 3, 2, 3)).astype("float32")

    def image_gradient(function):
        """d/dimages of sum(function ** 2), as a function of both."""
        import tensorflow as tf

        def compute(images, kernel):
            with tf.GradientTape() as tape:
                tape.watch(images)
                outputs = function(images, kernel, 2, padding) ** 2
            return tape.gradient(outputs, images)

        return compute

    (value, gradients), (plain_value, plain_gradients) = (
        value_and_gradients(
            image_gradient(function), [images, kernel], np.ones_like(images)
        )
        for function in (convolution, ops.conv)
    )
    np.testing.assert_allclose(value, plain_value, atol=1e-4)
    for ours, theirs in zip(gradients, plain_gradients, strict=True):
        assert np.abs(theirs).max() > 1
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-3)
