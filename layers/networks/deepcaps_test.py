import numpy as np
import pytest
import tensorflow as tf
from keras import ops

import layers
from testing import gradients, numpy_oracle

RNG = np.random.default_rng(8)


@pytest.mark.parametrize(
    ("strides", "sides"), [(1, (3, 2)), (2, (4, 3)), (2, (1, 5))]
)
def test_convolutional_capsules_equal_loops(strides, sides):
    def oracle(inputs, kernel):
        images = inputs.reshape(*inputs.shape[:3], 4)
        s = numpy_oracle.convolution(images, kernel, strides, "SAME")
        return numpy_oracle.squash(s.reshape(*s.shape[:3], 3, 2), epsilon=1e-7)

    layer = layers.ConvCapsules(3, 2, strides=strides)
    gradients.check_layer(layer, RNG.normal(size=(2, *sides, 2, 2)), oracle)


def routed_map(inputs, weights, biases, num_routing, joint, by_map):
    """[P, H, W, I, a], [P, 3, 3, a, O * A], [P, O, A] -> [P, H, W, O, A]."""
    shape = (*inputs.shape[:3], *biases.shape[1:])
    by_type = np.moveaxis(inputs, 3, 0)
    votes = [numpy_oracle.convolution(x, weights, 1, "SAME") for x in by_type]
    votes = np.reshape(votes, (-1, *shape))
    logits = np.zeros(votes.shape[:-1])
    for _ in range(num_routing):
        shares = np.exp(logits)
        shares /= shares.sum(axis=(2, 3, 4) if joint else 4, keepdims=True)
        s = (shares[..., None] * votes).sum(axis=0) + biases[:, None, None]
        axes = (1, 2, 4) if by_map else 4
        norm = np.sqrt((s**2).sum(axis=axes, keepdims=True))
        v = s / norm * norm**2 / (1 + norm**2)
        logits += (votes * v).sum(axis=-1)
    return v


@pytest.mark.parametrize("squash", ["atoms", "map"])
@pytest.mark.parametrize("couple", ["positions_and_types", "types"])
@pytest.mark.parametrize("num_routing", [1, 2, 3])
def test_routing_over_maps_equals_loops(num_routing, couple, squash):
    rule = layers.MapRoutingRule(couple_over=couple, squash_over=squash)
    options = num_routing, couple != "types", squash == "map"
    layer = layers.ConvSlimCapsule(
        2, 2, 3, padding="SAME", num_routing=num_routing, rule=rule
    )
    inputs = RNG.normal(size=(2, 3, 2, 2, 2))
    gradients.check_layer(layer, inputs, lambda *a: routed_map(*a, *options))
    couplings = gradients.to_numpy(layer.couplings(inputs))
    axes = (-1,) if couple == "types" else (2, 3, 5)
    np.testing.assert_allclose(couplings.sum(axis=axes), 1, rtol=1e-5)


def test_a_coarse_decoder_repeats_pixels():
    coarse = layers.ConvReconstruction(20, 29, 3, 3)
    small = layers.ConvReconstruction(7, 10, 3)
    capsules = RNG.normal(size=(2, 3, 4)).astype("float32")
    labels = np.array([2, 0])
    expected = gradients.to_numpy(small(capsules, labels))
    coarse(capsules, labels)
    coarse.set_weights(small.get_weights())
    repeated = expected.repeat(3, 1).repeat(3, 2)[:, :20, :29]
    found = gradients.to_numpy(coarse(capsules, labels))
    np.testing.assert_allclose(found, repeated, rtol=1e-5)
    assert layers.ConvReconstruction(**coarse.get_config()).scale == 3


@pytest.mark.parametrize("training", [False, True])
def test_decoder_equals_loops(training):
    """Images of 9x10 come from a map of 5x5 by one strided convolution."""
    layer = layers.ConvReconstruction(9, 10, 1)
    layer.build((2, 3, 4))
    weights = [RNG.uniform(-0.5, 0.5, w.shape) for w in layer.weights]
    weights[5] += 1  # the moving variance
    layer.set_weights(weights)
    kernel, bias, gamma, beta, *statistics = weights[:6]

    def oracle(capsules):
        """[P, 2, 3, 4] -> [P, 2, 9, 10, 1]."""
        atoms = capsules[:, [0, 1], [2, 0]]
        x = np.maximum(atoms @ kernel + bias, 0).reshape(-1, 2, 5, 5, 16)
        mean, variance = statistics
        if training:
            axes = {"axis": (1, 2, 3), "keepdims": True}
            mean, variance = x.mean(**axes), x.var(**axes)
        x = (x - mean) / np.sqrt(variance + 0.001) * gamma + beta
        x = x.reshape(-1, 5, 5, 16)
        for first, strides in ((6, 1), (8, 2), (10, 1)):
            w, b = weights[first : first + 2]
            size = len(x), *(strides * n for n in x.shape[1:3]), len(b)
            x = tf.nn.conv2d_transpose(x, w, size, strides).numpy() + b
        return np.maximum(x, 0)[:, :9].reshape(-1, 2, 9, 10, 1)

    arguments = {"labels": np.array([2, 0], "int32"), "training": training}
    state = layer.trainable_variables, layer.non_trainable_variables
    capsules = RNG.normal(size=(2, 3, 4)).astype("float32")
    gradients.check_whole_batch(
        lambda x: layer.stateless_call(*state, x, **arguments)[0],
        [capsules.astype("float64")],
        oracle,
        slack=5,
    )
    layer(capsules, **arguments)
    atoms = capsules[[0, 1], [2, 0]]
    x = np.maximum(atoms @ kernel + bias, 0).reshape(-1, 16).mean(axis=0)
    mean = 0.8 * statistics[0] + 0.2 * x if training else statistics[0]
    np.testing.assert_allclose(layer.get_weights()[4], mean, rtol=1e-4)


def test_deep_capsules_do_not_vanish():
    x = RNG.normal(size=(4, 8, 8, 16, 1)).astype("float32")
    for _ in range(5):
        layer = layers.ConvCapsules(8, 8)
        x = layer(x)
        limit = np.sqrt(3 / np.sqrt(layer.count_params()))
        assert 0.99 < np.abs(layer.get_weights()[0]).max() / limit < 1.001
    assert ops.mean(layers.lengths(x)) > 0.05
