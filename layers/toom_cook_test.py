import functools

import numpy as np
import pytest
import tensorflow as tf

from layers.fast_convolution import toom_cook
from layers.fast_convolution.toom_cook import Plan, axes
from testing.gradients import value_and_gradients

RNG = np.random.default_rng(5)


def convolve(plan, images, kernel):
    spectrum = toom_cook.kernel_spectrum(kernel, plan)
    return toom_cook.convolution_by_spectrum(images, spectrum, plan)


def plans(size, kernel_size, strides, padding):
    """One tile; the smallest tiles; rows and columns cut differently."""
    rows, columns = (axes(n, kernel_size, strides, padding) for n in size)
    chosen = [
        (rows[0], columns[0]),
        (rows[-1], columns[-1]),
        (rows[len(rows) // 2], columns[0]),
    ]
    return [Plan(*pair) for pair in dict.fromkeys(chosen)]


def check(size, kernel_size, strides, padding, channels=2, filters=3, batch=2):
    """Value and gradients of every plan against float64."""
    images = RNG.normal(size=(batch, *size, channels))
    kernel = RNG.normal(size=(kernel_size, kernel_size, channels, filters))
    variables = tf.Variable(images), tf.Variable(kernel)
    with tf.GradientTape() as tape:
        value = tf.nn.conv2d(*variables, strides, padding.upper())
    cotangent = RNG.normal(size=value.shape)
    expected = [value, *tape.gradient(value, variables, cotangent)]
    for plan in plans(size, kernel_size, strides, padding):
        value, gradients = value_and_gradients(
            functools.partial(convolve, plan), [images, kernel], cotangent
        )
        for ours, loops in zip([value, *gradients], expected, strict=True):
            assert ours.shape == loops.shape
            assert np.linalg.norm(ours - loops) < 2e-6 * np.linalg.norm(loops)


@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize("strides", [1, 2, 3])
@pytest.mark.parametrize("kernel_size", [1, 2, 3, 5, 9])
def test_values_and_gradients_equal_loops(kernel_size, strides, padding):
    check((16, 13), kernel_size, strides, padding)


@pytest.mark.parametrize("has_products", [False, True])
@pytest.mark.parametrize(
    ("batch", "channels", "padding"),
    [(31, 3, "valid"), (31, 32, "same"), (32, 3, "same"), (32, 32, "valid")],
)
def test_padding_for_the_cache(
    monkeypatch, batch, channels, padding, has_products
):
    monkeypatch.setattr(
        "layers.fast_convolution.toom_cook.cpu_has_bfloat16_products",
        lambda: has_products,
    )
    check((8, 7), 3, 2, padding, channels, 2, batch)


@pytest.mark.parametrize("channels", [(1, 40), (40, 1), (256, 8)])
def test_one_and_many_channels_of_the_papers_sizes(channels):
    check((20, 20), 9, 2, "valid", *channels)
