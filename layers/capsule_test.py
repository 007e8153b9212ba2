import dataclasses

import keras
import numpy as np
import pytest
from keras import ops

import layers
from layers import convolution
from layers.routing_test import assert_gradients_close
from testing import numpy_oracle
from testing.gradients import value_and_gradients

RNG = np.random.default_rng(11)


def check_layer(layer, inputs, argument_arrays, oracle):
    """Outputs and all gradients of a built layer against an oracle.

    `inputs` is a batch; the oracle's gradients are summed over its examples.
    """
    shape = tuple(layer.compute_output_shape(inputs.shape))
    cotangent = RNG.normal(size=shape)
    value, gradients = value_and_gradients(
        lambda x, *weights: layer.stateless_call(list(weights), [], x)[0],
        [inputs, *argument_arrays],
        cotangent,
    )
    assert value.shape == shape
    copies = [
        np.broadcast_to(a, (len(inputs), *a.shape)) for a in argument_arrays
    ]
    np.testing.assert_allclose(value, oracle(inputs, *copies), atol=1e-5)
    by_example = [
        numpy_oracle.numerical_gradients(
            oracle, [example, *argument_arrays], cotangent[number]
        )
        for number, example in enumerate(inputs)
    ]
    input_gradients, *weight_gradients = zip(*by_example, strict=True)
    expected = [
        np.stack(input_gradients),
        *(sum(gradients) for gradients in weight_gradients),
    ]
    assert_gradients_close(gradients, expected)


def random_weights(layer):
    return [RNG.normal(size=w.shape) * 0.5 for w in layer.trainable_weights]


@pytest.mark.parametrize(
    ("num_routing", "leaky"), [(1, False), (2, True), (3, False), (3, True)]
)
def test_capsule_equals_loops(num_routing, leaky):
    layer = layers.Capsule(3, 4, num_routing=num_routing, leaky=leaky)
    inputs = RNG.normal(size=(2, 5, 2))
    layer.build(inputs.shape)
    check_layer(
        layer,
        inputs,
        random_weights(layer),
        lambda *arguments: numpy_oracle.capsule(*arguments, num_routing, leaky),
    )


# From 17 on several outputs make a block; of 35 the last block is smaller.
@pytest.mark.parametrize("num_capsules", [1, 16, 17, 35])
def test_capsule_with_any_number_of_outputs_equals_loops(num_capsules):
    layer = layers.Capsule(num_capsules, 2)
    inputs = RNG.normal(size=(1, 3, 2))
    layer.build(inputs.shape)
    check_layer(
        layer,
        inputs,
        random_weights(layer),
        lambda *arguments: numpy_oracle.capsule(*arguments, 3, False),
    )


@pytest.mark.parametrize("leaky", [False, True])
def test_couplings_of_a_capsule_layer_equal_loops(leaky):
    layer = layers.Capsule(3, 4, num_routing=3, leaky=leaky)
    generator = np.random.default_rng(12)
    inputs = generator.normal(size=(2, 5, 2))
    layer.build(inputs.shape)
    weights = generator.normal(size=(5, 2, 12))
    biases = generator.normal(size=(3, 4))
    layer.set_weights([weights, biases])
    votes = np.einsum("pia,iak->pik", inputs, weights).reshape(2, 5, 3, 4)
    _, expected = numpy_oracle.routing_steps(
        votes, np.stack([biases, biases]), 3, leaky
    )
    couplings = layer.couplings(ops.convert_to_tensor(inputs, "float32"))
    np.testing.assert_allclose(
        ops.convert_to_numpy(couplings), expected, atol=1e-5
    )


def test_couplings_of_a_convolutional_layer_equal_loops():
    layer = layers.ConvSlimCapsule(3, 4, kernel_size=2)
    generator = np.random.default_rng(15)
    inputs = generator.normal(size=(2, 2, 3, 5, 6))
    layer.build(inputs.shape)
    weights = generator.normal(size=(2, 2, 6, 12)) / 2
    biases = generator.normal(size=(3, 4))
    layer.set_weights([weights, biases])
    couplings = ops.convert_to_numpy(
        layer.couplings(ops.convert_to_tensor(inputs, "float32"))
    )
    assert couplings.shape == (3, 2, 1, 2, 5, 3)
    for column in range(2):
        seen = inputs[:, :, column : column + 2]
        votes = np.einsum("pyxia,yxak->pik", seen, weights)
        _, expected = numpy_oracle.routing_steps(
            votes.reshape(2, 5, 3, 4), np.stack([biases, biases]), 3, False
        )
        np.testing.assert_allclose(
            couplings[:, :, 0, column], expected, atol=1e-5
        )


def test_a_convolution_on_a_gpu_takes_the_type_of_its_images(monkeypatch):
    layer = layers.ConvSlimCapsule(3, 4, kernel_size=2, dtype="mixed_bfloat16")
    layer.build((1, 2, 3, 5, 6))
    inputs = ops.cast(RNG.normal(size=(1, 2, 3, 5, 6)), "float32")
    expected = ops.convert_to_numpy(layer.couplings(inputs))
    # As there: with weights in float32 where nothing is cast by itself.
    monkeypatch.setattr(convolution, "is_on_cpu", lambda: False)
    found = ops.convert_to_numpy(layer.couplings(inputs))
    assert found.shape == (3, 1, 1, 2, 5, 3)
    np.testing.assert_allclose(found, expected, atol=0.01)


@pytest.mark.parametrize("share_weights", [False, True])
def test_couplings_in_mixed_bfloat16_are_close(share_weights):
    inputs = np.random.default_rng(14).normal(size=(2, 5, 4))
    found = []
    for policy in ("float32", "mixed_bfloat16"):
        layer = layers.Capsule(
            3, 4, 3, share_weights=share_weights, dtype=policy
        )
        layer.build(inputs.shape)
        generator = np.random.default_rng(13)
        layer.set_weights(
            [generator.normal(size=w.shape) for w in layer.weights]
        )
        given = ops.cast(inputs, layer.compute_dtype)
        couplings = layer.couplings(given)
        found.append(ops.convert_to_numpy(ops.cast(couplings, "float32")))
    np.testing.assert_allclose(*found, atol=0.05)
    assert not np.array_equal(*found)


# Each pair of values of two arguments is met.
@pytest.mark.parametrize(
    ("num_routing", "leaky", "padding", "strides", "types"),
    [
        (1, False, "VALID", 1, 1),
        (1, True, "SAME", 2, 3),
        (2, False, "SAME", 2, 1),
        (2, True, "VALID", 1, 3),
        (3, False, "VALID", 2, 3),
        (3, True, "SAME", 1, 1),
    ],
)
def test_conv_slim_capsule_equals_loops(
    num_routing, leaky, padding, strides, types
):
    layer = layers.ConvSlimCapsule(
        2,
        3,
        kernel_size=3,
        strides=strides,
        padding=padding,
        num_routing=num_routing,
        leaky=leaky,
    )
    inputs = RNG.normal(size=(1, 4, 5, types, 2))
    layer.build(inputs.shape)
    check_layer(
        layer,
        inputs,
        random_weights(layer),
        lambda *arguments: numpy_oracle.conv_slim_capsule(
            *arguments, strides, padding, num_routing, leaky
        ),
    )


@pytest.mark.parametrize(
    ("layer", "input_shape", "weight_shape"),
    [
        (layers.Capsule(10, 16), (None, 1152, 8), (1152, 8, 160)),
        (
            layers.ConvSlimCapsule(32, 8, 9, strides=2),
            (None, 20, 20, 1, 256),
            (9, 9, 256, 256),
        ),
    ],
)
def test_initial_weights_are_the_references(layer, input_shape, weight_shape):
    layer.build(input_shape)
    weights, biases = map(ops.convert_to_numpy, layer.trainable_weights)
    assert weights.shape == weight_shape
    assert np.abs(weights).max() <= 0.2  # cut at two deviations
    # Deviation of a normal distribution cut at two: 0.8796 of the full one.
    np.testing.assert_allclose(weights.std(), 0.08796, rtol=0.01)
    np.testing.assert_array_equal(biases, np.float32(0.1))
    assert biases.shape == (layer.num_capsules, layer.num_atoms)


LAYERS = [
    (
        layers.Capsule(3, 4, num_routing=2, leaky=True),
        (2, 5, 2),
    ),
    (
        layers.ConvSlimCapsule(
            3, 4, 3, strides=2, padding="SAME", num_routing=2, leaky=True
        ),
        (2, 6, 5, 2, 3),
    ),
]


@keras.saving.register_keras_serializable(package="tests")
@dataclasses.dataclass(frozen=True)
class Sharpened(layers.RoutingRule):
    """A rule of a user's own, whose logits count several times."""

    times: float = 2.0

    def couplings(self, logits, axis):
        return super().couplings(self.times * logits, axis)


class Blunt(layers.RoutingRule):
    """One whose parameter is not a field."""

    def __init__(self, times):
        super().__init__()
        object.__setattr__(self, "times", times)


@keras.saving.register_keras_serializable(package="tests")
class Whole(Blunt):
    """One that tells its parameter itself."""

    def get_config(self):
        return {"times": self.times}


def test_a_rule_is_not_saved_without_its_parameters():
    layer = layers.Capsule(3, 4, rule=Blunt(times=0.5))
    with pytest.raises(ValueError, match="Blunt would be saved without times"):
        layer.get_config()
    layer = layers.Capsule(3, 4, rule=Whole(times=0.5))
    again = layers.Capsule.from_config(layer.get_config())
    assert again.rule.times == 0.5


def test_a_rule_of_ones_own_routes_and_is_saved(tmp_path):
    rule = Sharpened(times=3.0)
    inputs = keras.Input((5, 2))
    layer = layers.Capsule(3, 4, num_routing=2, rule=rule)
    model = keras.Model(inputs, layer(inputs))
    x = np.random.default_rng(16).normal(size=(1, 5, 2)).astype("float32")
    weights, biases = map(ops.convert_to_numpy, layer.weights)
    votes = np.einsum("ia,iak->ik", x[0], weights).reshape(5, 3, 4)
    for given, times in ((rule, 3), (layers.RoutingRule(), 1)):
        layer.rule = given
        first, second = ops.convert_to_numpy(layer.couplings(x))[:, 0]
        np.testing.assert_allclose(first, np.full((5, 3), 1 / 3), rtol=1e-6)
        agreement = np.einsum(
            "ioa,oa->io",
            votes,
            numpy_oracle.squash(votes.sum(0) / 3 + biases),
        )
        np.testing.assert_allclose(
            second,
            numpy_oracle.softmax(times * agreement, False),
            rtol=1e-5,
        )
    layer.rule = rule
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.layers[-1].rule == rule
    np.testing.assert_array_equal(
        ops.convert_to_numpy(loaded(x)), ops.convert_to_numpy(model(x))
    )


@pytest.mark.parametrize(("layer", "shape"), LAYERS)
def test_layers_survive_saving(layer, shape, tmp_path):
    inputs = keras.Input(shape[1:])
    model = keras.Model(inputs, layer(inputs))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    x = RNG.normal(size=shape).astype("float32")
    np.testing.assert_array_equal(
        ops.convert_to_numpy(loaded(x)), ops.convert_to_numpy(model(x))
    )
    assert loaded.layers[-1].get_config() == layer.get_config()
    assert tuple(model.output.shape[1:]) == tuple(
        layer.compute_output_shape(shape)[1:]
    )


def test_length_is_float32_under_every_policy():
    layer = layers.Length(dtype="mixed_bfloat16")
    lengths = layer(np.array([[[3.0, 4.0], [0.0, 0.0]]], "float32"))
    assert keras.backend.standardize_dtype(lengths.dtype) == "float32"
    np.testing.assert_allclose(ops.convert_to_numpy(lengths), [[5, 0]])
    assert layer.compute_output_shape((None, 10, 16)) == (None, 10)
    symbolic = layer(keras.Input((10, 16)))
    assert (symbolic.shape, symbolic.dtype) == ((None, 10), "float32")


def test_numbers_may_be_numpys():
    assert layers.Capsule(np.int64(3), np.int32(4)).num_capsules == 3
    layer = layers.ConvSlimCapsule(2, 3, np.int64(3), strides=np.int64(2))
    assert layer(np.zeros((1, 7, 7, 1, 4), "float32")).shape[1:3] == (3, 3)
    with pytest.raises(ValueError, match="num_capsules must be a positive"):
        layers.Capsule(np.float64(3), 4)


@pytest.mark.parametrize(("layer", "shape"), LAYERS)
def test_layers_in_mixed_bfloat16(layer, shape):
    config = layer.get_config()
    mixed = type(layer).from_config({**config, "dtype": "mixed_bfloat16"})
    full = type(layer).from_config({**config, "dtype": "float32"})
    x = RNG.normal(size=shape).astype("float32")
    mixed.build(shape)
    full.build(shape)
    mixed.set_weights(full.get_weights())
    out = mixed(x)
    assert keras.backend.standardize_dtype(out.dtype) == "bfloat16"
    assert all(
        keras.backend.standardize_dtype(w.dtype) == "float32"
        for w in mixed.weights
    )
    np.testing.assert_allclose(
        ops.convert_to_numpy(ops.cast(out, "float32")),
        ops.convert_to_numpy(full(x)),
        atol=0.02,
    )


# A bfloat16 has 8 bits, so that a rounding is off by at most 2^-8, and by less
# than half of it in the root mean square. Where products are summed in float32
# a gradient of three iterations passes through less than 25 roundings; they
# add like random numbers, to less than sqrt(25) / 2 * 2^-8.
BFLOAT16_BOUND = 2.5 * 2**-8


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (layers.Capsule(10, 16), (4, 200, 8)),
        (layers.Capsule(10, 16, leaky=True), (4, 200, 8)),
        (layers.ConvSlimCapsule(4, 8, 3, strides=2), (2, 7, 7, 6, 8)),
        (layers.ConvSlimCapsule(8, 8, 3, num_routing=1), (2, 7, 7, 1, 32)),
    ],
)
def test_gradients_in_mixed_bfloat16_are_close(layer, shape):
    generator = np.random.default_rng(13)
    layer.build(shape)
    inputs = generator.normal(size=shape) * 0.3
    weights = [generator.normal(size=w.shape) * 0.1 for w in layer.weights]
    cotangent = generator.normal(size=layer.compute_output_shape(shape))
    found = {}
    for policy in ("float32", "mixed_bfloat16"):
        config = {**layer.get_config(), "dtype": policy}
        found[policy] = _value_and_gradients_by_call(
            type(layer).from_config(config), inputs, weights, cotangent
        )
    for mixed, full in zip(*reversed(found.values()), strict=True):
        error = np.linalg.norm(mixed - full) / np.linalg.norm(full)
        assert 0 < error < BFLOAT16_BOUND


def _value_and_gradients_by_call(layer, inputs, weights, cotangent):
    """As one list, through `__call__`, which casts as the policy says."""
    layer.build(inputs.shape)

    def call(x, *values):
        mapping = list(zip(layer.weights, values, strict=True))
        with keras.StatelessScope(state_mapping=mapping):
            return ops.cast(layer(x), "float32")

    value, gradients = value_and_gradients(call, [inputs, *weights], cotangent)
    return [value, *gradients]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_capsules": 0, "num_atoms": 4}, "num_capsules"),
        ({"num_capsules": 3, "num_atoms": 1.5}, "num_atoms"),
        ({"num_capsules": 3, "num_atoms": 4, "num_routing": 0}, "num_routing"),
    ],
)
def test_capsule_refuses_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=f"{message} must be a positive"):
        layers.Capsule(**arguments)


@pytest.mark.parametrize("name", ["leaky", "share_weights", "use_bias"])
def test_what_is_a_bool(name):
    with pytest.raises(ValueError, match=f"{name} must be a bool.*'no'"):
        layers.Capsule(3, 4, **{name: "no"})


def test_a_rule_is_a_rule():
    with pytest.raises(ValueError, match="must be a RoutingRule.*'add'"):
        layers.Capsule(3, 4, rule="add")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kernel_size": 0}, "kernel_size must be"),
        ({"kernel_size": 3, "strides": -1}, "strides must be"),
        ({"kernel_size": 3, "padding": "FULL"}, "VALID or SAME.*FULL"),
    ],
)
def test_conv_slim_capsule_refuses_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        layers.ConvSlimCapsule(3, 4, **arguments)


@pytest.mark.parametrize(
    ("layer", "shape", "message"),
    [
        (layers.Capsule(3, 4), (2, 5), "ndim=3"),
        (layers.ConvSlimCapsule(3, 4, 3), (2, 6, 6, 3), "ndim=5"),
        (layers.ConvSlimCapsule(3, 4, 9), (2, 6, 6, 1, 3), "at least.*9"),
    ],
)
def test_layers_refuse_wrong_input(layer, shape, message):
    with pytest.raises(ValueError, match=message):
        layer(np.zeros(shape, "float32"))


def test_layers_refuse_another_number_of_capsules_once_built():
    layer = layers.Capsule(3, 4)
    layer.build((None, 5, 2))
    with pytest.raises(ValueError, match="shape"):
        layer(np.zeros((2, 6, 2), "float32"))
