import keras
import numpy as np
import pytest
from keras import ops

import layers
from layers import convolution as convolution_module
from layers.convolution import convolution
from layers.utils import is_tensorflow_on_cpu
from testing import numpy_oracle
from testing.gradients import value_and_gradients

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


SIZES = [(7, 7), (8, 6), (3, 5)]


# Strides beyond the kernel leave rows out; SAME then crops instead of padding.
@pytest.mark.parametrize("by_patches", [False, True])
@pytest.mark.parametrize(
    ("padding", "strides", "size", "kernel_size"),
    [
        (
            padding,
            strides,
            SIZES[(strides + kernel_size + place) % 3],
            kernel_size,
        )
        for place, padding in enumerate(("valid", "same"))
        for strides in (1, 2, 3, 4)
        for kernel_size in (1, 2, 3)
    ],
)
def test_value_and_gradients_equal_loops(
    padding, strides, size, kernel_size, by_patches, monkeypatch
):
    if by_patches:
        monkeypatch.setattr(convolution_module, "is_jax_on_cpu", lambda: True)
        monkeypatch.setattr(
            convolution_module, "_has_small_patches", lambda *_: True
        )
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


@pytest.fixture
def always_toom_cook(monkeypatch):
    """As if a direct convolution took forever."""
    expensive = {keras.backend.backend(): (1e9, 1.0, 0.0)}
    monkeypatch.setattr(convolution_module, "_COSTS", expensive)
    convolution_module.faster_plan.cache_clear()
    yield
    convolution_module.faster_plan.cache_clear()


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow",
    reason="elsewhere Keras multiplies matrices in float32 by default",
)
def test_float64_stays_float64(always_toom_cook):
    ours, theirs = conv2d(dtype="float64")
    x = RNG.normal(size=(2, 8, 9, 2))
    np.testing.assert_allclose(
        ops.convert_to_numpy(ours(x)),
        ops.convert_to_numpy(theirs(x)),
        atol=1e-12,
    )


def test_images_smaller_than_the_kernel_are_named(monkeypatch):
    monkeypatch.setattr(convolution_module, "is_on_cpu", lambda: True)
    layer = layers.Conv2D(4, 3)
    layer.build((None, None, None, 2))
    with pytest.raises(ValueError, match="are smaller than the kernel of"):
        layer(np.zeros((1, 2, 2, 2), "float32"))


def conv2d(**arguments):
    """A layer, and Keras' own of the same weights."""
    ours = layers.Conv2D(3, 3, padding="same", name="conv", **arguments)
    theirs = keras.layers.Conv2D(3, 3, padding="same", name="conv", **arguments)
    for layer in (ours, theirs):
        layer.build((None, 8, 9, 2))
    theirs.set_weights(ours.get_weights())
    return ours, theirs


@pytest.mark.parametrize(
    "arguments",
    [
        {"activation": "relu"},
        {"strides": (2, 1), "use_bias": False},
        {"dilation_rate": 2},
    ],
)
def test_layer_gives_what_keras_own_gives(arguments, always_toom_cook):
    ours, theirs = conv2d(**arguments)
    assert [w.path for w in ours.weights] == [w.path for w in theirs.weights]
    x = RNG.normal(size=(2, 8, 9, 2)).astype("float32")
    np.testing.assert_allclose(
        ops.convert_to_numpy(ours(x)),
        ops.convert_to_numpy(theirs(x)),
        atol=1e-5,
    )


def test_layer_takes_batches_and_images_of_sizes_not_known_before(
    always_toom_cook,
):
    ours, theirs = conv2d()
    for shape in [(8, 9, 2), (None, None, 2)]:
        inputs = keras.Input(shape)
        model = keras.Model(inputs, ours(inputs))
        for batch in (1, 3):
            x = RNG.normal(size=(batch, 8, 9, 2)).astype("float32")
            np.testing.assert_allclose(
                model.predict(x, verbose=0),
                ops.convert_to_numpy(theirs(x)),
                atol=1e-5,
            )


def test_layer_survives_saving(tmp_path):
    ours, _ = conv2d()
    inputs = keras.Input((8, 9, 2))
    keras.Model(inputs, ours(inputs)).save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded.layers[1]) is layers.Conv2D


def test_toom_cook_is_chosen_where_it_pays():
    def plan(images, kernel, strides=1, batch=128):
        return convolution_module.faster_plan(
            (batch, *images), kernel, (strides, strides), "valid"
        )

    # The paper's primary capsules, the baseline's second convolution.
    assert plan((20, 20, 256), (9, 9, 256, 256), 2).tiles == 1
    assert plan((12, 12, 512), (5, 5, 512, 256))
    if keras.backend.backend() == "tensorflow":
        # Those of MultiMNIST's 36x36 images: with it few tiles are fastest.
        assert plan((28, 28, 256), (9, 9, 256, 256), 2).tiles == 1
    # A few channels; one position.
    assert plan((10, 10, 8), (3, 3, 8, 8)) is None
    assert plan((9, 9, 256), (9, 9, 256, 256)) is None
    # A number that is not known yet, as TensorFlow and JAX have it.
    kernel = 9, 9, 256, 256
    for unknown in (None, "b"):
        found = plan((20, 20, 256), kernel, 2, unknown)
        assert found == plan((20, 20, 256), kernel, 2)


@pytest.mark.skipif(
    not is_tensorflow_on_cpu(), reason="TensorFlow on CPUs only"
)
def test_of_an_unknown_batch_the_number_decides(monkeypatch):
    import tensorflow as tf

    def marked(images, kernel, strides, padding):
        return original(images, kernel, strides, padding) + 1000

    original = convolution_module._direct
    size, kernel = (20, 20, 64), RNG.normal(size=(9, 9, 64, 64))
    kernel = kernel.astype("float32")
    least = convolution_module.least_batch(
        (None, *size), kernel.shape, (2, 2), "valid"
    )
    assert 1 < least < 32
    images = RNG.normal(size=(least, *size)).astype("float32")
    expected = convolution_by_loops(images, kernel, 2, "valid")

    @tf.function(input_signature=[tf.TensorSpec((None, *size))])
    def compute(images):
        return convolution(images, kernel, 2, "valid")

    monkeypatch.setattr(convolution_module, "_direct", marked)
    np.testing.assert_allclose(compute(images), expected, atol=1e-3)
    np.testing.assert_allclose(
        compute(images[1:]), expected[1:] + 1000, atol=1e-3
    )


@pytest.mark.parametrize("has_products", [False, True])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_short_numbers_are_multiplied_where_the_processor_can(
    dtype, has_products, always_toom_cook, monkeypatch
):
    def recorded(images, taps, plan):
        multiplied.append(plan.dtype)
        for tensor in images, taps:
            found = keras.backend.standardize_dtype(tensor.dtype)
            assert found == plan.dtype
        return original(images, taps, plan)

    multiplied = []
    original = convolution_module.convolution_by_spectrum
    monkeypatch.setattr(convolution_module, "convolution_by_spectrum", recorded)
    monkeypatch.setattr(convolution_module, "is_on_cpu", lambda: True)
    monkeypatch.setattr(
        convolution_module, "cpu_has_bfloat16_products", lambda: has_products
    )
    images, kernel = (
        RNG.normal(size=(2, 9, 8, 4)),
        RNG.normal(size=(3, 3, 4, 5)),
    )
    value = convolution(
        ops.cast(images, dtype), ops.cast(kernel, dtype), 2, "same"
    )
    assert keras.backend.standardize_dtype(value.dtype) == dtype
    is_short = dtype == "bfloat16" and has_products
    assert multiplied == ["bfloat16" if is_short else "float32"]
    expected = convolution_by_loops(images, kernel, 2, "same")
    error = ops.convert_to_numpy(ops.cast(value, "float32")) - expected
    bound = {"bfloat16": 0.01, "float16": 1e-3, "float32": 1e-6}[dtype]
    assert np.linalg.norm(error) < bound * np.linalg.norm(expected)


def test_bfloat16_is_rounded_once():
    images = ops.cast(RNG.normal(size=(2, 9, 9, 4)), "bfloat16")
    kernel = ops.cast(RNG.normal(size=(3, 3, 4, 5)), "bfloat16")
    value = convolution(images, kernel, 2, "same")
    assert keras.backend.standardize_dtype(value.dtype) == "bfloat16"
    value, *wide = (
        ops.convert_to_numpy(ops.cast(x, "float32"))
        for x in (value, images, kernel)
    )
    np.testing.assert_allclose(
        value,
        convolution_by_loops(*wide, 2, "same"),
        rtol=2**-8,
        atol=1e-3,
    )
