import numpy as np
import pytest

from layers import kept_spectra
from layers.convolution import Conv2D, convolution, faster_plan
from layers.kept_spectra import KeptSpectra
from layers.utils import is_tensorflow_on_cpu

pytestmark = pytest.mark.skipif(
    not is_tensorflow_on_cpu(), reason="TensorFlow on CPUs only"
)

SHAPE = (32, 12, 12, 64)


@pytest.fixture
def images():
    return np.random.default_rng(1).normal(size=SHAPE).astype("float32")


@pytest.fixture
def transforms(monkeypatch):
    """The kernels that are transformed, one after the other."""
    found = []
    original = kept_spectra.kernel_spectrum

    def counted(kernel, plan):
        found.append(kernel)
        return original(kernel, plan)

    monkeypatch.setattr(kept_spectra, "kernel_spectrum", counted)
    return found


def layer_and_function(spectra, dtype="float32", jit_compile=False):
    import tensorflow as tf

    layer = Conv2D(64, 9, padding="same", dtype=dtype)
    layer.build(SHAPE)
    sizes = SHAPE, tuple(layer.kernel.shape), (1, 1), "same"
    assert faster_plan(*sizes, layer.compute_dtype) is not None

    @tf.function(jit_compile=jit_compile)
    def compute(images):
        with spectra.in_use():
            return layer(images)

    return layer, compute


@pytest.mark.parametrize(
    ("dtype", "jit_compile", "tolerance"),
    [
        ("float32", False, 1e-5),
        ("float32", True, 1e-5),
        ("mixed_bfloat16", False, 1e-5),
        ("mixed_bfloat16", True, 1e-2),  # XLA rounds elsewhere
    ],
)
def test_updated_spectra_are_those_of_the_kernel(
    images, dtype, jit_compile, tolerance
):
    close = {"rtol": tolerance, "atol": tolerance}
    spectra = KeptSpectra()
    layer, compute = layer_and_function(spectra, dtype, jit_compile)
    spectra.update()  # there is none yet
    before = compute(images)
    np.testing.assert_allclose(before, layer(images), **close)
    layer.kernel.assign(layer.kernel * 3)
    np.testing.assert_array_equal(compute(images), before)
    spectra.update()
    after = compute(images)
    np.testing.assert_allclose(after, layer(images), **close)
    assert np.abs(np.array(after) - np.array(before)).max() > 0.1


def test_a_kernel_is_transformed_once(images, transforms):
    spectra = KeptSpectra()
    _, compute = layer_and_function(spectra)
    for number in (32, 16, 32):
        compute(images[:number])
    assert len(transforms) == 1
    spectra.update()
    assert len(transforms) == 2


def test_other_computations_transform_it_themselves(images, transforms):
    spectra = KeptSpectra()
    layer, compute = layer_and_function(spectra)
    compute(images)
    layer.kernel.assign(layer.kernel * 3)
    expected = 3 * compute(images)
    np.testing.assert_allclose(layer(images), expected, rtol=1e-4, atol=1e-4)
    with spectra.in_use():
        of_tensor = convolution(images, 1 * layer.kernel, 1, "same")
    np.testing.assert_allclose(of_tensor, expected, rtol=1e-4, atol=1e-4)
    assert len(transforms) == 3
