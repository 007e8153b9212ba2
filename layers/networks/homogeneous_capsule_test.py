import numpy as np
import pytest
from keras import ops

import layers
from testing.gradients import check_whole_batch, one_by_one, to_numpy

RNG = np.random.default_rng(23)
MOMENTUM = 0.9


def class_sums(images, kernel, order):
    """[B, H, W, C], [a, I, O] -> [B, O, a]."""
    capsules = images.reshape(len(images), -1, images.shape[-1])
    if order == "zxy":
        capsules = capsules.swapaxes(1, 2)
    return np.einsum("bid,dio->bod", capsules, kernel)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("order", "shape"), [("xyz", (6, 4)), ("zxy", (4, 6))])
def test_capsules_equal_numpy(order, shape, training):
    layer = layers.HomogeneousCapsule(3, order, MOMENTUM)
    images = RNG.normal(size=(3, 2, 3, 4))
    layer.build(images.shape)
    assert layer.kernel.shape == (shape[1], shape[0], 3)
    weights = [RNG.normal(size=w.shape) for w in layer.get_weights()[:2]]
    statistics = RNG.uniform(0.5, 2, (2, shape[1])).astype("float32")

    def call(images, *weights):
        state = [ops.convert_to_tensor(s) for s in statistics]
        return layer.stateless_call(
            list(weights), state, images, training=training
        )

    def oracle(images, kernel, beta):
        sums = class_sums(images, kernel, order)
        mean, variance = statistics
        if training:
            mean, variance = sums.mean((0, 1)), sums.var((0, 1))
        return np.maximum((sums - mean) / np.sqrt(variance + 1e-3) + beta, 0)

    arguments = [images, *weights]
    check_whole_batch(lambda *a: call(*a)[0], arguments, one_by_one(oracle))
    _, moving = call(*(np.asarray(a, "float32") for a in arguments))
    expected = statistics
    if training:
        sums = class_sums(images, weights[0], order)
        new = np.stack([sums.mean((0, 1)), sums.var((0, 1))])
        expected = MOMENTUM * statistics + (1 - MOMENTUM) * new
    np.testing.assert_allclose(to_numpy(moving), expected, rtol=1e-4)


def test_wrong_arguments_and_unknown_sizes():
    with pytest.raises(ValueError, match="XYZ"):
        layers.HomogeneousCapsule(3, "XYZ")
    for shape in ((None, 2, 4), (2, None, 4), (2, 2, None)):
        with pytest.raises(ValueError, match="must be known"):
            layers.HomogeneousCapsule(3).build((2, *shape))
    with pytest.raises(ValueError, match="num_routing"):
        layers.VectorRouting(3, 4, num_routing=0)


def test_initial_weights_are_normal():
    layer = layers.HomogeneousCapsule(50)
    layer.build((None, 10, 10, 20))
    # The quantiles of a standard deviation below and above the mean.
    found = np.quantile(to_numpy(layer.kernel), [0.1587, 0.8413])
    np.testing.assert_allclose(found, [-0.05, 0.05], rtol=0.03)
