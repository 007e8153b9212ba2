"""Shared weights and the routing of J. Su, against explicit loops."""

import keras
import numpy as np
import pytest
from keras import ops

import layers
from layers.capsule_test import check_layer, random_weights
from layers.routing import couplings_of
from layers.votes import FormedVotes, SharedVotes
from testing import numpy_oracle
from testing.gradients import value_and_gradients

RNG = np.random.default_rng(17)
SQUASH = {"squash_constant": 0.5, "squash_epsilon": 1e-7}
# By name: the rule, and what the oracle calls the same.
RULES = {
    "direction": (
        {"logits": "replace", "compare": "direction", **SQUASH},
        {"replace": True, "direction": True, "constant": 0.5, "epsilon": 1e-7},
    ),
    "squashed": (
        {"logits": "replace", **SQUASH},
        {"replace": True, "constant": 0.5, "epsilon": 1e-7},
    ),
    "add": (SQUASH, {"constant": 0.5, "epsilon": 1e-7}),
}


def make(rule="direction", share_weights=True, **options):
    return layers.Capsule(
        3,
        4,
        share_weights=share_weights,
        **{
            "use_bias": False,
            "kernel_initializer": "glorot_uniform",
            "rule": layers.RoutingRule(**RULES[rule][0]),
            **options,
        },
    )


def oracle_of(rule, num_routing):
    """Of inputs [P, I, a] and weights [P, I or 1, a, O * A]."""

    def oracle(inputs, weights):
        no_biases = np.zeros((len(inputs), 3, 4))
        return numpy_oracle.capsule(
            inputs, weights, no_biases, num_routing, False, **RULES[rule][1]
        )

    return oracle


@pytest.mark.parametrize("num_routing", [1, 2, 3, 5])
@pytest.mark.parametrize(
    ("rule", "share_weights", "num_inputs"),
    [
        ("direction", True, 5),
        ("direction", False, 5),
        ("direction", True, 1),
        ("squashed", True, 5),
        ("squashed", False, 1),
        ("add", True, 5),
    ],
)
def test_layer_equals_loops(rule, share_weights, num_inputs, num_routing):
    layer = make(rule, share_weights, num_routing=num_routing)
    inputs = RNG.normal(size=(2, num_inputs, 2))
    layer.build(inputs.shape)
    assert [w.shape[0] for w in layer.weights] == [
        1 if share_weights else num_inputs
    ]
    check_layer(
        layer, inputs, random_weights(layer), oracle_of(rule, num_routing)
    )


def test_shared_weights_with_biases_and_leaky_couplings_equal_loops():
    layer = layers.Capsule(3, 4, leaky=True, share_weights=True)
    inputs = RNG.normal(size=(2, 5, 2))
    layer.build(inputs.shape)
    check_layer(
        layer,
        inputs,
        random_weights(layer),
        lambda *arguments: numpy_oracle.capsule(*arguments, 3, True),
    )


@pytest.mark.parametrize("rule", sorted(RULES))
def test_the_same_weights_take_any_number_of_input_capsules(rule):
    layer = make(rule)
    layer.build((None, None, 2))
    weights = RNG.normal(size=(1, 2, 12))
    layer.set_weights([weights])
    for num_inputs in (1, 4, 9):
        inputs = RNG.normal(size=(2, num_inputs, 2))
        expected = oracle_of(rule, 3)(
            inputs, np.broadcast_to(weights, (2, *weights.shape))
        )
        out = ops.convert_to_numpy(layer(inputs.astype("float32")))
        np.testing.assert_allclose(out, expected, atol=1e-5)


def test_the_number_of_input_capsules_may_be_unknown():
    images = keras.Input((None, 2))
    layer = make()
    model = keras.Model(images, layer(images))
    assert model.output_shape == (None, 3, 4)
    for num_inputs in (2, 7):
        inputs = RNG.normal(size=(3, num_inputs, 2)).astype("float32")
        np.testing.assert_allclose(
            model.predict_on_batch(inputs),
            ops.convert_to_numpy(layer(inputs)),
            atol=1e-6,
        )


@pytest.mark.parametrize("num_inputs", [1, 5])
@pytest.mark.parametrize("rule", sorted(RULES))
def test_zero_capsules_are_finite(rule, num_inputs):
    layer = make(rule)
    zeros = np.zeros((2, num_inputs, 2))
    layer.build(zeros.shape)

    def lengths_of(inputs, weights):
        capsules = layer.stateless_call([weights], [], inputs)[0]
        return layers.lengths(capsules)

    value, gradients = value_and_gradients(
        lengths_of, [zeros, RNG.normal(size=(1, 2, 12))], np.ones((2, 3))
    )
    np.testing.assert_array_equal(value, 0.0)
    for gradient in gradients:
        assert np.isfinite(gradient).all()


def test_a_zero_capsule_among_others_equals_loops():
    layer = make()
    inputs = RNG.normal(size=(1, 4, 2))
    inputs[0, 2] = 0.0
    layer.build(inputs.shape)
    check_layer(layer, inputs, random_weights(layer), oracle_of("direction", 3))


@pytest.mark.parametrize("rule", sorted(RULES))
def test_couplings_equal_those_of_formed_votes(rule):
    inputs = RNG.normal(size=(2, 5, 2)).astype("float32")
    weights = RNG.normal(size=(1, 2, 12)).astype("float32")
    votes = np.einsum("bia,ak->bik", inputs, weights[0]).reshape(2, 5, 3, 4)
    routing_rule = layers.RoutingRule(**RULES[rule][0])
    shared, formed = (
        ops.convert_to_numpy(couplings_of(v, None, 3, routing_rule))
        for v in (
            SharedVotes(ops.convert_to_tensor(inputs), weights, 3),
            FormedVotes(ops.convert_to_tensor(votes)),
        )
    )
    assert shared.shape == (3, 2, 5, 3)
    np.testing.assert_allclose(shared, formed, atol=1e-5)
    assert np.ptp(shared[-1]) > 0.1


def test_shared_votes_in_bfloat16_are_close_and_keep_the_type():
    layer = make(dtype="bfloat16")
    layer.build((None, None, 2))
    inputs, weights = RNG.normal(size=(2, 5, 2)), RNG.normal(size=(1, 2, 12))
    layer.set_weights([weights])
    out = layer(ops.cast(inputs, "bfloat16"))
    assert keras.backend.standardize_dtype(out.dtype) == "bfloat16"
    expected = oracle_of("direction", 3)(
        inputs, np.broadcast_to(weights, (2, *weights.shape))
    )
    np.testing.assert_allclose(
        ops.convert_to_numpy(ops.cast(out, "float32")), expected, atol=0.05
    )


@pytest.mark.parametrize("length", [0.0, 1e-4, 1e-3, 0.1, 1.0, 30.0])
def test_squash_with_the_epsilon_follows_the_formula(length):
    s = np.zeros((1, 3))
    s[0, 1] = length
    cotangent = RNG.normal(size=(1, 3))
    value, gradients = value_and_gradients(
        lambda tensor: layers.squash(tensor, 0.5, 1e-7), [s], cotangent
    )

    def oracle(copies):
        return numpy_oracle.squash(copies[:, 0], 0.5, 1e-7)[:, None]

    np.testing.assert_allclose(
        value, numpy_oracle.squash(s, 0.5, 1e-7), rtol=1e-5, atol=1e-12
    )
    expected = numpy_oracle.numerical_gradients(
        oracle, [s], cotangent, step=1e-6
    )
    np.testing.assert_allclose(gradients, expected, rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize(
    ("share_weights", "limit"),
    [(True, np.sqrt(6 / 168)), (False, np.sqrt(6 / (64 * 168)))],
)
def test_initial_weights_are_glorots(share_weights, limit):
    keras.utils.set_random_seed(0)
    layer = layers.Capsule(
        10,
        16,
        share_weights=share_weights,
        use_bias=False,
        kernel_initializer="glorot_uniform",
    )
    layer.build((None, 64, 8))
    (weights,) = layer.get_weights()
    assert weights.shape == (1 if share_weights else 64, 8, 160)
    assert 0.99 * limit < np.abs(weights).max() <= limit
    np.testing.assert_allclose(weights.std(), limit / np.sqrt(3), rtol=0.05)


def test_a_file_keeps_the_routing(tmp_path):
    images = keras.Input((None, 2))
    model = keras.Model(images, make("squashed", num_routing=5)(images))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    inputs = RNG.normal(size=(2, 5, 2)).astype("float32")
    np.testing.assert_array_equal(
        ops.convert_to_numpy(loaded(inputs)),
        ops.convert_to_numpy(model(inputs)),
    )
    assert loaded.layers[1].rule == layers.RoutingRule(**RULES["squashed"][0])


def test_what_does_not_go_together_is_refused():
    with pytest.raises(ValueError, match="leaky is True, but rule is not"):
        make(leaky=True)
    with pytest.raises(ValueError, match=r"known capsules, atoms.*None, 2"):
        make(share_weights=False).build((None, None, 2))
    with pytest.raises(ValueError, match="known atoms"):
        make().build((None, 5, None))
