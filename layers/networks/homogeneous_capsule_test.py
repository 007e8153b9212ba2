import numpy as np
import pytest
from keras import ops

import layers
from testing.gradients import check_whole_batch, one_by_one, value_and_gradients

RNG = np.random.default_rng(23)
MOMENTUM = 0.9


def normalize(values, beta, statistics):
    """Normalizes [B, O, n] over all but the last axis."""
    if statistics is None:
        statistics = values.mean(axis=(0, 1)), values.var(axis=(0, 1))
    mean, variance = statistics
    return (values - mean) / np.sqrt(variance + 1e-3) + beta


def capsules_of(image, order):
    """The capsules [I, a] of an image [H, W, C]."""
    channels = image.shape[-1]
    if order == "xyz":
        return image.reshape(-1, channels)
    return np.stack([image[..., c].reshape(-1) for c in range(channels)])


def class_sums(images, kernel, order):
    atoms, count, num_capsules = kernel.shape
    sums = np.zeros((len(images), num_capsules, atoms))
    for b, image in enumerate(images):
        capsules = capsules_of(image, order)
        assert capsules.shape == (count, atoms)
        for o, d, i in np.ndindex(num_capsules, atoms, count):
            sums[b, o, d] += kernel[d, i, o] * capsules[i, d]
    return sums


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("order", "shape"), [("xyz", (6, 4)), ("zxy", (4, 6))])
def test_capsules_equal_loops(order, shape, training):
    layer = layers.HomogeneousCapsule(3, order, MOMENTUM)
    images = RNG.normal(size=(3, 2, 3, 4))
    layer.build(images.shape)
    assert layer.kernel.shape == (shape[1], shape[0], 3)
    arguments = [
        images,
        *(RNG.normal(size=w.shape) for w in layer.get_weights()[:2]),
    ]
    statistics = RNG.uniform(0.5, 2, (2, shape[1])).astype("float32")

    def call(images, kernel, beta):
        return layer.stateless_call(
            [kernel, beta],
            [ops.convert_to_tensor(s) for s in statistics],
            images,
            training=training,
        )

    def oracle(images, kernel, beta):
        sums = class_sums(images, kernel, order)
        used = None if training else statistics
        return np.maximum(normalize(sums, beta, used), 0)

    check_whole_batch(lambda *a: call(*a)[0], arguments, one_by_one(oracle))
    _, moving = call(*(np.asarray(a, "float32") for a in arguments))
    expected = statistics
    if training:
        sums = class_sums(images, arguments[1], order)
        new = np.stack([sums.mean((0, 1)), sums.var((0, 1))])
        expected = MOMENTUM * statistics + (1 - MOMENTUM) * new
    np.testing.assert_allclose(
        [ops.convert_to_numpy(m) for m in moving], expected, rtol=1e-4
    )


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
    kernel = np.sort(ops.convert_to_numpy(layer.kernel).ravel())
    size = len(kernel)
    # The quantiles of a standard deviation below and above the mean.
    low, high = kernel[int(0.1587 * size)], kernel[int(0.8413 * size)]
    np.testing.assert_allclose([low, high], [-0.05, 0.05], rtol=0.03)


def test_zero_capsules_have_finite_gradients():
    layer = layers.HomogeneousCapsule(3)
    layer.build((2, 2, 2, 4))
    state = [ops.convert_to_tensor(w) for w in layer.get_weights()[2:]]

    def class_lengths(images, kernel, beta):
        outputs = layer.stateless_call([kernel, beta], state, images)[0]
        return layers.lengths(outputs)

    zeros = [np.zeros((2, 2, 2, 4)), np.zeros((4, 4, 3)), np.zeros(4)]
    _, gradients = value_and_gradients(class_lengths, zeros, np.ones((2, 3)))
    assert not any(gradient.any() for gradient in gradients)
