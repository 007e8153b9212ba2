import numpy as np
import pytest
from keras import ops

import layers
from layers.routing import RoutingRule
from layers.votes import FormedVotes
from testing import numpy_oracle
from testing.gradients import check_whole_batch, to_numpy, value_and_gradients

RNG = np.random.default_rng(7)
VOTES = RNG.normal(size=(5, 3, 4))  # I, O, A
BIASES = RNG.normal(size=(3, 4))


@pytest.mark.parametrize("leaky", [False, True])
@pytest.mark.parametrize("num_routing", [1, 2, 3, 5])
def test_routing_equals_loops(num_routing, leaky):
    rule = num_routing, leaky
    check_whole_batch(
        lambda *both: layers.dynamic_routing(*both, *rule),
        [VOTES, BIASES],
        lambda *both: numpy_oracle.routing_steps(*both, *rule)[0],
    )
    _, couplings = numpy_oracle.routing_steps(VOTES[None], BIASES, *rule)
    both = VOTES.astype("float32"), BIASES.astype("float32")
    ours = to_numpy(layers.routing_couplings(*both, *rule))
    np.testing.assert_allclose(ours, couplings[:, 0], atol=1e-5)


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (layers.dynamic_routing, (5, 2, 3)),
        (layers.self_attention_routing, (1, 2, 3, 4)),
    ],
)
def test_integer_votes(function, shape):
    votes = np.arange(np.prod(shape)).reshape(shape) % 5
    biases = np.zeros((2, 3), "float32")
    ours = function(votes, biases)
    expected = function(votes.astype("float32"), biases)
    np.testing.assert_array_equal(to_numpy(ours), to_numpy(expected))


def test_wrong_biases_and_rules_are_refused():
    for function in (layers.dynamic_routing, layers.routing_couplings):
        with pytest.raises(ValueError, match="`biases` must have the shape"):
            function(VOTES, BIASES[0])
    for rule in ({"logits": "sum"}, {"compare": "s"}):
        with pytest.raises(ValueError, match="Received"):
            RoutingRule(**rule)


def test_many_bfloat16_votes_are_summed_in_float32():
    # In bfloat16 256 + 1 is 256.
    votes = FormedVotes(ops.ones((1, 1153, 1, 1), "bfloat16"))
    assert to_numpy(votes.sum()).tolist() == [[[1153]]]


@pytest.mark.parametrize("length", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize("options", [(1.0, 0.0), (0.5, 1e-7)])
def test_squash_equals_its_formula(length, options):
    direction, step = RNG.normal(size=(1, 6)), 1e-4 * length
    s = length * direction / np.linalg.norm(direction)
    s = s.astype("float32").astype("float64")
    cotangent = RNG.normal(size=(1, 6))
    value, gradients = value_and_gradients(
        lambda s: layers.squash(s, *options), [s], cotangent
    )
    expected = numpy_oracle.squash(s, *options)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    assert np.linalg.norm(value.astype("float64")) <= 1 + 1e-6
    expected = numpy_oracle.numerical_gradients(
        lambda s: numpy_oracle.squash(s, *options), [s], cotangent, step
    )
    np.testing.assert_allclose(gradients, expected, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("function", [layers.squash, layers.lengths])
def test_zero_and_tiny_capsules(function):
    s = np.full((35, 8), 10.0 ** np.arange(-30, 5)[:, None])
    s[0] = 0.0
    shape = (35, 8) if function is layers.squash else (35,)
    value, gradients = value_and_gradients(function, [s], np.ones(shape))
    np.testing.assert_array_equal(value[0], 0.0)
    np.testing.assert_array_equal(gradients[0][0], 0.0)


@pytest.mark.parametrize("scale", [-1e4, 1e4])
def test_leaky_softmax_of_large_logits_is_finite(scale):
    value, _ = value_and_gradients(
        layers.leaky_softmax, [[[scale, 0.0]]], [[1.0, 1.0]]
    )
    expected = [[0.0, 0.5]] if scale < 0 else [[1.0, 0.0]]
    np.testing.assert_allclose(value, expected, atol=1e-6)
