import dataclasses

import keras
import numpy as np
import pytest
from keras import ops

import layers
from testing import numpy_oracle
from testing.gradients import check_layer, to_numpy, value_and_gradients

RNG = np.random.default_rng(11)
SU = {"squash_constant": 0.5, "squash_epsilon": 1e-7}
# Attributes of the rule, which the oracle takes, too.
RULES = {
    "direction": {"logits": "replace", "compare": "direction", **SU},
    "squashed": {"logits": "replace", **SU},
    "add": SU,
}


@pytest.mark.parametrize("share_weights", [False, True])
@pytest.mark.parametrize(
    ("num_capsules", "num_routing", "leaky"),
    [
        *((3, 1, False), (3, 2, True), (3, 3, False), (3, 3, True)),
        # From 17 outputs on a block has several; the last one may be smaller.
        *((n, 3, False) for n in (1, 16, 17, 35)),
    ],
)
def test_capsule_equals_loops(num_capsules, num_routing, leaky, share_weights):
    options = num_routing, leaky
    check_layer(
        layers.Capsule(num_capsules, 4, *options, share_weights=share_weights),
        RNG.normal(size=(2, 5, 2)),
        lambda *args, **part: numpy_oracle.capsule(*args, *options, **part),
        "couplings",
    )


def su_capsule(rule="direction", share_weights=True, num_routing=3):
    rule = layers.RoutingRule(**RULES[rule])
    options = {"share_weights": share_weights, "use_bias": False, "rule": rule}
    options["kernel_initializer"] = "glorot_uniform"
    return layers.Capsule(3, 4, num_routing, **options)


def su_oracle(rule="direction", num_routing=3):
    options = np.zeros((1, 3, 4)), num_routing, False
    return lambda *both: numpy_oracle.capsule(*both, *options, **RULES[rule])


@pytest.mark.parametrize("num_routing", [1, 2, 3, 5])
@pytest.mark.parametrize(
    ("rule", "share_weights", "num_inputs"),
    [
        *(("direction", True, 5), ("direction", False, 5)),
        *(("direction", True, 1), ("squashed", True, 5), ("add", True, 5)),
    ],
)
def test_other_rules_equal_loops(rule, share_weights, num_inputs, num_routing):
    inputs = RNG.normal(size=(2, num_inputs, 2))
    inputs[0, 1:2] = 0.0
    layer = su_capsule(rule, share_weights, num_routing)
    check_layer(layer, inputs, su_oracle(rule, num_routing))


def test_shared_weights_accept_any_number_of_input_capsules():
    layer = su_capsule()
    images = keras.Input((None, 2))
    model = keras.Model(images, layer(images))
    assert model.output_shape == (None, 3, 4)
    (weights,) = layer.get_weights()
    assert weights.shape == (1, 2, 12)
    for num_inputs in (1, 7):
        inputs = RNG.normal(size=(3, num_inputs, 2)).astype("float32")
        expected = su_oracle()(inputs, weights[None])
        found = model.predict_on_batch(inputs)
        np.testing.assert_allclose(found, expected, atol=1e-5)
    with pytest.raises(ValueError, match="share_weights=True"):
        layers.Capsule(3, 4)(images)


@pytest.mark.parametrize("types", [2, None])
def test_convolution_takes_images_of_unknown_size(types):
    images = keras.Input((None, None, types, 3))
    layer = layers.ConvSlimCapsule(3, 4, 3, strides=2, padding="SAME")
    model = keras.Model(images, layer(images))
    assert model.output_shape == (None, None, None, 3, 4)
    weights = [w[None].repeat(2, axis=0) for w in layer.get_weights()]
    for size in ((6, 5), (9, 7)):
        inputs = RNG.normal(size=(2, *size, 2, 3)).astype("float32")
        expected = numpy_oracle.conv_slim_capsule(
            inputs, *weights, 2, "SAME", 3, False
        )
        found = model.predict_on_batch(inputs)
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("rule", sorted(RULES))
def test_zero_capsules_are_finite(rule):
    layer = su_capsule(rule)
    zeros = np.zeros((2, 5, 2))
    layer.build(zeros.shape)
    value, _ = value_and_gradients(
        lambda x, weights: layer.stateless_call([weights], [], x)[0],
        [zeros, RNG.normal(size=(1, 2, 12))],
        np.ones((2, 3, 4)),
    )
    np.testing.assert_array_equal(value, 0.0)


# Each pair of values of two arguments occurs.
@pytest.mark.parametrize(
    ("num_routing", "leaky", "padding", "strides", "types"),
    [
        *((1, False, "VALID", 1, 1), (1, True, "SAME", 2, 3)),
        *((2, False, "SAME", 2, 1), (2, True, "VALID", 1, 3)),
        *((3, False, "VALID", 2, 3), (3, True, "SAME", 1, 1)),
    ],
)
def test_conv_slim_capsule_equals_loops(
    num_routing, leaky, padding, strides, types
):
    options = strides, padding, num_routing, leaky
    oracle = numpy_oracle.conv_slim_capsule
    check_layer(
        layers.ConvSlimCapsule(2, 3, 3, *options),
        RNG.normal(size=(1, 4, 5, types, 2)),
        lambda *args, **part: oracle(*args, *options, **part),
        "couplings",
    )


@keras.saving.register_keras_serializable(package="tests")
@dataclasses.dataclass(frozen=True)
class Sharpened(layers.RoutingRule):
    """A user's rule, which multiplies the logits."""

    times: float = 2.0

    def couplings(self, logits, axis):
        return super().couplings(self.times * logits, axis)


def test_a_custom_rule_routes_and_is_saved(tmp_path):
    rule = Sharpened(times=3.0)
    inputs = keras.Input((5, 2))
    layer = layers.Capsule(3, 4, num_routing=2, rule=rule)
    model = keras.Model(inputs, layer(inputs))
    x = RNG.normal(size=(1, 5, 2)).astype("float32")
    first, second = to_numpy(layer.couplings(x))
    np.testing.assert_allclose(first, 1 / 3, rtol=1e-6)
    plain = layers.Capsule(3, 4, num_routing=2)
    plain.build(x.shape)
    plain.set_weights(layer.get_weights())
    expected = to_numpy(plain.couplings(x))[1] ** 3
    expected /= expected.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(second, expected, rtol=1e-5)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.layers[-1].rule == rule


# A bfloat16 has 8 bits, so a rounding error is at most 2^-8 and its root mean
# square less than half of that. A gradient of three iterations passes through
# less than 25 roundings, which add to less than sqrt(25) / 2 * 2^-8.
@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        *((layers.Capsule(10, 16, 3, leaky), (4, 200, 8)) for leaky in (0, 1)),
        (layers.ConvSlimCapsule(4, 8, 3, strides=2), (2, 7, 7, 6, 8)),
        (layers.ConvSlimCapsule(8, 8, 3, num_routing=1), (2, 7, 7, 1, 32)),
        (layers.SelfAttentionCapsule(10, 16), (4, 16, 8)),
    ],
)
def test_gradients_in_mixed_bfloat16_are_close(layer, shape):
    rng = np.random.default_rng(13)
    layer.build(shape)
    inputs = rng.normal(size=shape) * 0.3
    weights = [rng.normal(size=w.shape) * 0.1 for w in layer.weights]
    cotangent = rng.normal(size=layer.compute_output_shape(shape))

    def run(policy):
        config = {**layer.get_config(), "dtype": policy}
        copy = type(layer).from_config(config)
        copy.build(shape)

        def call(x, *values):
            outputs, _ = copy.stateless_call(list(values), [], x)
            return ops.cast(outputs, "float32")

        arguments = [inputs, *weights]
        value, gradients = value_and_gradients(call, arguments, cotangent)
        copy.set_weights(weights)
        is_attention = isinstance(copy, layers.SelfAttentionCapsule)
        inside = copy.attention if is_attention else copy.couplings
        return [value, *gradients, to_numpy(inside(inputs.astype("f4")))]

    for mixed, full in zip(run("mixed_bfloat16"), run("float32"), strict=True):
        error = np.linalg.norm(mixed - full) / np.linalg.norm(full)
        assert error < 2.5 * 2**-8
        assert error > 0 or np.ptp(full) < 1e-6  # equal couplings
