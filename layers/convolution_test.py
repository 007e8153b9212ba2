import keras
import numpy as np
import pytest
from keras import ops

import layers
from layers import fast_convolution as module
from layers.backends import is_on_cpu
from testing import numpy_oracle
from testing.gradients import check

RNG = np.random.default_rng(3)
on_tensorflow = pytest.mark.skipif(
    not is_on_cpu("tensorflow"), reason="TensorFlow on CPUs only"
)


def convolution(images, kernel, stride, padding):
    return module.convolution(images, kernel, (stride, stride), padding)


# With strides larger than the kernel, rows are left out and SAME crops. The
# sizes have every remainder of a division by a stride.
@pytest.mark.parametrize("name", ["convolution", "by_patches", "by_phases"])
@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize("stride", [1, 2, 3, 4])
@pytest.mark.parametrize("kernel_size", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("size", [(8, 6), (5, 7)])
def test_value_and_gradients_equal_loops(
    size, padding, stride, kernel_size, name
):
    function = getattr(module, name)
    check(
        lambda *both: function(*both, (stride, stride), padding),
        [RNG.normal(size=(2, *size, 2))],
        [RNG.normal(size=(kernel_size, kernel_size, 2, 3))],
        lambda *both: numpy_oracle.convolution(*both, stride, padding),
    )


@pytest.mark.skipif(
    keras.backend.backend() == "torch", reason="torch does not use XLA"
)
def test_phases_where_xla_would_multiply_zeros():
    # As compiled for an H100 by JAX 0.10: sizes of image, kernel and stride.
    for is_by_phases, sizes, padding in (
        *((True, s, "valid") for s in ((20, 9, 2), (24, 9, 2), (32, 7, 4))),
        *((False, s, "valid") for s in ((28, 9, 2), (24, 5, 2), (16, 9, 1))),
        *((True, (12, 4, 3), "same"), (False, (24, 9, 2), "same")),
        (False, (9, 9, 2), "valid"),
    ):
        pairs = [(n, n) for n in sizes]
        assert module.has_slow_gradients(*pairs, padding) == is_by_phases


@pytest.fixture
def always_toom_cook(monkeypatch):
    """Makes the direct convolution expensive."""
    expensive = {keras.backend.backend(): (1e9, 1.0, 0.0)}
    monkeypatch.setattr(module, "_COSTS", expensive)
    module.faster_plan.cache_clear()
    yield
    module.faster_plan.cache_clear()


def conv2d(**arguments):
    """A layer, and Keras' own with the same weights."""
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
        pytest.param({"dtype": "float64"}, marks=on_tensorflow),
    ],
)
def test_layer_equals_that_of_keras(arguments, always_toom_cook):
    ours, theirs = conv2d(**arguments)
    x = RNG.normal(size=(2, 8, 9, 2)).astype(ours.compute_dtype)
    both = map(ops.convert_to_numpy, (ours(x), theirs(x)))
    atol = 1e-12 if ours.compute_dtype == "float64" else 1e-5
    np.testing.assert_allclose(*both, atol=atol)


def test_sizes_of_batch_and_images_may_be_unknown(always_toom_cook, tmp_path):
    ours, theirs = conv2d()
    for shape in [(8, 9, 2), (None, None, 2)]:
        inputs = keras.Input(shape)
        model = keras.Model(inputs, ours(inputs))
        for batch in (1, 3):
            x = RNG.normal(size=(batch, 8, 9, 2)).astype("float32")
            found = model.predict(x, verbose=0)
            expected = ops.convert_to_numpy(theirs(x))
            np.testing.assert_allclose(found, expected, atol=1e-5)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded.layers[1]) is layers.Conv2D


@on_tensorflow
@pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated")
@pytest.mark.skipif(keras.__version__ < "3.12", reason="exports no LiteRT")
def test_exports_compute_the_direct_convolution(always_toom_cook, tmp_path):
    import tensorflow as tf

    inputs = keras.Input((8, 9, 2))
    ours, theirs = conv2d()
    path = str(tmp_path / "model.tflite")
    model = keras.Model(inputs, ours(inputs))
    model.export(path, format="litert", verbose=False)
    interpreter = tf.lite.Interpreter(path)
    interpreter.allocate_tensors()
    (taken,) = interpreter.get_input_details()
    (given,) = interpreter.get_output_details()
    x = RNG.normal(size=(1, 8, 9, 2)).astype("float32")
    interpreter.set_tensor(taken["index"], x)
    interpreter.invoke()
    found = interpreter.get_tensor(given["index"])
    np.testing.assert_allclose(found, theirs(x), atol=1e-5)


def test_toom_cook_is_chosen_where_it_pays():
    def plan(images, kernel, stride=1, batch=128):
        return module.faster_plan(
            (batch, *images), kernel, (stride, stride), "valid"
        )

    # The paper's primary capsules; the baseline's second convolution.
    assert plan((20, 20, 256), (9, 9, 256, 256), 2).tiles == 1
    assert plan((12, 12, 512), (5, 5, 512, 256))
    if keras.backend.backend() == "tensorflow":  # MultiMNIST
        assert plan((28, 28, 256), (9, 9, 256, 256), 2).tiles == 1
    # Few channels; a single position.
    assert plan((10, 10, 8), (3, 3, 8, 8)) is None
    assert plan((9, 9, 256), (9, 9, 256, 256)) is None
    sizes = (20, 20, 256), (9, 9, 256, 256), 2
    assert plan(*sizes, batch=None) == plan(*sizes)


@on_tensorflow
def test_the_size_of_an_unknown_batch_selects_the_algorithm(monkeypatch):
    import tensorflow as tf

    size, kernel = (20, 20, 64), RNG.normal(size=(9, 9, 64, 64))
    kernel = kernel.astype("float32")
    least = module.least_batch((None, *size), kernel.shape, (2, 2), "valid")
    assert 1 < least < 32
    images = RNG.normal(size=(least, *size)).astype("float32")
    expected = numpy_oracle.convolution(images, kernel, 2, "valid")

    @tf.function(input_signature=[tf.TensorSpec((None, *size))])
    def compute(images):
        return convolution(images, kernel, 2, "valid")

    direct = module._direct
    monkeypatch.setattr(module, "_direct", lambda *args: direct(*args) + 1000)
    np.testing.assert_allclose(compute(images), expected, atol=1e-3)
    less = compute(images[1:])
    np.testing.assert_allclose(less, expected[1:] + 1000, atol=1e-3)


@pytest.mark.parametrize("has_products", [False, True])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_dtype_and_precision_of_products(
    dtype, has_products, always_toom_cook, monkeypatch
):
    monkeypatch.setattr(module, "is_on_cpu", lambda *_: True)
    has, name = lambda: has_products, "cpu_has_bfloat16_products"
    monkeypatch.setattr(module, name, has)
    images = RNG.normal(size=(4, 20, 20, 64))
    kernel = RNG.normal(size=(9, 9, 64, 8))
    both = (ops.cast(array, dtype) for array in (images, kernel))
    value = convolution(*both, 2, "valid")
    assert keras.backend.standardize_dtype(value.dtype) == dtype
    expected = numpy_oracle.convolution(images, kernel, 2, "valid")
    error = ops.convert_to_numpy(value) - expected
    # Half of the last of 8 bits of a bfloat16 is 0.2%: a few such roundings.
    bound = {"bfloat16": 0.007, "float16": 1e-3, "float32": 1e-6}[dtype]
    assert np.linalg.norm(error) < bound * np.linalg.norm(expected)


def test_on_a_gpu_the_kernel_is_cast_to_the_dtype_of_the_images(monkeypatch):
    images = ops.cast(RNG.normal(size=(2, 5, 5, 3)), "bfloat16")
    kernel = RNG.normal(size=(2, 2, 3, 4)).astype("float32")
    monkeypatch.setattr(module, "is_on_cpu", lambda *_: False)
    value = convolution(images, kernel, 1, "valid")
    assert keras.backend.standardize_dtype(value.dtype) == "bfloat16"


SHAPE = (32, 12, 12, 64)


@on_tensorflow
@pytest.mark.parametrize(
    ("dtype", "jit_compile", "tolerance"),
    [
        ("float32", False, 1e-5),
        ("float32", True, 1e-5),
        ("mixed_bfloat16", False, 1e-5),
        ("mixed_bfloat16", True, 1e-2),  # XLA rounds elsewhere
    ],
)
def test_kept_spectra_are_those_of_the_kernel(dtype, jit_compile, tolerance):
    import tensorflow as tf

    close = {"rtol": tolerance, "atol": tolerance}
    images = RNG.normal(size=SHAPE).astype("float32")
    spectra = module.KeptSpectra()
    layer = layers.Conv2D(64, 9, padding="same", dtype=dtype)
    layer.build(SHAPE)
    sizes = SHAPE, tuple(layer.kernel.shape), (1, 1), "same"
    assert module.faster_plan(*sizes, layer.compute_dtype) is not None

    @tf.function(jit_compile=jit_compile)
    def compute(images):
        with spectra.in_use():
            return layer(images)

    before = compute(images)
    expected = ops.cast(layer(images), "float32")
    np.testing.assert_allclose(before, expected, **close)
    layer.kernel.assign(layer.kernel * 3)
    np.testing.assert_array_equal(compute(images), before)
    spectra.update()
    after = compute(images)
    expected = ops.cast(layer(images), "float32")
    np.testing.assert_allclose(after, expected, **close)
    assert np.abs(np.array(after) - np.array(before)).max() > 0.1
