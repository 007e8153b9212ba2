import keras
import numpy as np
import pytest
from keras import ops

import layers
from layers.capsule_test import check_layer, random_weights
from layers.routing_test import assert_gradients_close
from testing import numpy_oracle
from testing.gradients import value_and_gradients

RNG = np.random.default_rng(17)


@pytest.mark.parametrize("length", [1e-3, 0.3, 4.0])
def test_squash_equals_its_formula(length):
    s = RNG.normal(size=(2, 5))
    s *= length / np.linalg.norm(s, axis=1, keepdims=True)
    cotangent = RNG.normal(size=s.shape)
    value, gradients = value_and_gradients(
        layers.exponential_squash, [s], cotangent
    )
    np.testing.assert_allclose(
        value, numpy_oracle.exponential_squash(s), atol=1e-6
    )
    np.testing.assert_allclose(
        np.linalg.norm(value, axis=1), 1 - np.exp(-length), rtol=1e-5
    )
    for row, gradient in zip(range(2), gradients[0], strict=True):
        expected = numpy_oracle.numerical_gradients(
            numpy_oracle.exponential_squash,
            [s[row]],
            cotangent[row],
            step=1e-4 * length,
        )
        assert_gradients_close([gradient], expected)


@pytest.mark.parametrize("size", [0.0, 1e-30, 1e-12, 1e-6])
def test_small_capsules_have_the_identity_as_gradient(size):
    cotangent = RNG.normal(size=(1, 8))
    value, gradients = value_and_gradients(
        layers.exponential_squash, [np.full((1, 8), size)], cotangent
    )
    np.testing.assert_allclose(value, size, rtol=1e-5)
    np.testing.assert_allclose(gradients[0], cotangent, rtol=1e-4)


def test_a_kernel_may_be_square():
    for number in (3, np.int64(3)):
        assert layers.DepthwiseCapsule(2, number).kernel_size == (3, 3)


@pytest.mark.parametrize("kernel_size", [None, (2, 3)])
def test_depthwise_capsules_equal_loops(kernel_size):
    layer = layers.DepthwiseCapsule(2, kernel_size)
    inputs = RNG.normal(size=(2, 3, 3, 6))
    layer.build(inputs.shape)
    assert layer.kernel.shape == (*(kernel_size or (3, 3)), 6)
    check_layer(
        layer,
        inputs,
        random_weights(layer),
        lambda *arguments: numpy_oracle.depthwise_capsule(*arguments, 2),
    )


def test_self_attention_equals_loops():
    layer = layers.SelfAttentionCapsule(3, 4)
    inputs = RNG.normal(size=(2, 5, 2))
    layer.build(inputs.shape)
    check_layer(
        layer,
        inputs,
        random_weights(layer),
        numpy_oracle.self_attention_capsule,
    )


def test_attention_in_mixed_bfloat16_is_that_of_the_layer():
    inputs = RNG.normal(size=(2, 5, 2)).astype("float32")
    layer = layers.SelfAttentionCapsule(3, 4, dtype="mixed_bfloat16")
    layer.build(inputs.shape)
    layer.set_weights(random_weights(layer))
    attention = ops.convert_to_numpy(layer.attention(inputs))
    # The numbers that the layer computes with, and not those it keeps.
    layer.kernel.assign(ops.cast(ops.cast(layer.kernel, "bfloat16"), "float32"))
    np.testing.assert_array_equal(
        attention, ops.convert_to_numpy(layer.attention(inputs))
    )


def test_attention_is_shared_among_the_outputs():
    layer = layers.SelfAttentionCapsule(3, 4)
    inputs = RNG.normal(size=(2, 5, 2)).astype("float32")
    capsules = ops.convert_to_numpy(layer(inputs))
    attention = ops.convert_to_numpy(layer.attention(inputs))
    assert attention.shape == (2, 5, 3)
    np.testing.assert_allclose(attention.sum(axis=-1), 1, rtol=1e-6)
    assert np.ptp(attention) > 0.01
    kernel = ops.convert_to_numpy(layer.kernel)
    votes = np.einsum("bia,oiac->bioc", inputs, kernel)
    s = (attention[..., None] * votes).sum(axis=1)
    expected = numpy_oracle.exponential_squash(s.reshape(-1, 4))
    np.testing.assert_allclose(capsules.reshape(-1, 4), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (layers.DepthwiseCapsule(2), (2, 3, 3, 4)),
        (layers.SelfAttentionCapsule(3, 4), (2, 5, 2)),
    ],
)
def test_zero_input_has_finite_gradients(layer, shape):
    layer.build(shape)
    cotangent = RNG.normal(size=layer.compute_output_shape(shape))
    value, gradients = value_and_gradients(
        lambda x, *weights: layer.stateless_call(list(weights), [], x)[0],
        [np.zeros(shape), *layer.get_weights()],
        cotangent,
    )
    np.testing.assert_array_equal(value, 0.0)
    assert all(np.isfinite(gradient).all() for gradient in gradients)
    assert np.abs(gradients[0]).max() > 0  # it can leave zero


def test_initial_weights():
    keras.utils.set_random_seed(3)
    primary = layers.DepthwiseCapsule(8)
    primary.build((None, 9, 9, 128))
    limit = np.sqrt(6 / (81 * 128 + 81))  # Glorot's, of Keras' shape
    kernel, bias = primary.get_weights()
    assert 0.98 * limit < np.abs(kernel).max() <= limit
    np.testing.assert_array_equal(bias, 0.0)
    classes = layers.SelfAttentionCapsule(10, 16)
    classes.build((None, 16, 8))
    kernel, biases = classes.get_weights()
    np.testing.assert_allclose(
        kernel.std(), np.sqrt(2 / (10 * 16 * 8)), rtol=0.03
    )
    np.testing.assert_array_equal(biases, 0.0)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (layers.DepthwiseCapsule(2, (2, 3), name="primary"), (2, 3, 3, 4)),
        (layers.SelfAttentionCapsule(3, 4, name="classes"), (2, 5, 2)),
    ],
)
def test_layers_are_saved_and_know_their_shapes(tmp_path, layer, shape):
    inputs = keras.Input(shape[1:])
    model = keras.Model(inputs, layer(inputs))
    images = RNG.normal(size=shape).astype("float32")
    expected = ops.convert_to_numpy(model(images))
    assert expected.shape == tuple(layer.compute_output_shape(shape))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.layers[-1].get_config() == layer.get_config()
    np.testing.assert_array_equal(
        ops.convert_to_numpy(loaded(images)), expected
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: layers.DepthwiseCapsule(0), "num_atoms must be a positive"),
        (lambda: layers.DepthwiseCapsule(2, (0, 1)), "rows must be a positive"),
        (lambda: layers.SelfAttentionCapsule(2, True), "num_atoms must be"),
        (
            lambda: layers.DepthwiseCapsule(2).build((None, None, 3, 4)),
            "known height, width, channels",
        ),
        (
            lambda: layers.DepthwiseCapsule(2, (4, 1)).build((None, 3, 3, 4)),
            "must be at least kernel_size=",
        ),
        (
            lambda: layers.DepthwiseCapsule(3).build((None, 3, 3, 4)),
            "must be a multiple of num_atoms=3",
        ),
        (
            lambda: layers.SelfAttentionCapsule(2, 3).build((None, 3)),
            "known capsules, atoms",
        ),
    ],
)
def test_wrong_arguments_and_shapes_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_mixed_precision_keeps_the_type_and_float32_weights():
    for layer, shape in (
        (layers.DepthwiseCapsule(2, dtype="mixed_bfloat16"), (2, 3, 3, 4)),
        (layers.SelfAttentionCapsule(3, 4, dtype="mixed_bfloat16"), (2, 5, 2)),
    ):
        out = layer(RNG.normal(size=shape).astype("float32"))
        assert keras.backend.standardize_dtype(out.dtype) == "bfloat16"
        assert {w.dtype for w in layer.weights} == {"float32"}
