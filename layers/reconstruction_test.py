import numpy as np
import pytest
from keras import ops

import layers
from testing import numpy_oracle
from testing.gradients import check_whole_batch, one_by_one

RNG = np.random.default_rng(13)
CAPSULES = RNG.normal(size=(3, 4, 5)).astype("float32")
LABELS = np.array([2, 0, 3], "int32")


@pytest.mark.parametrize("shape", [(), (1,), (2,), (3, 1), (3, 4, 1)])
def test_labels_of_another_shape_are_errors(shape):
    with pytest.raises(ValueError, match="must have the shape"):
        layers.mask_capsules(CAPSULES, np.zeros(shape, "int32"))


@pytest.mark.parametrize("he_normal", [False, True])
def test_decoder_equals_loops(he_normal):
    layer = layers.Reconstruction(2, 3, 2, he_normal)
    layer(CAPSULES, LABELS)
    weights = layer.get_weights()
    shapes = [w.shape for w in weights[::2]]
    assert shapes == [(20, 512), (512, 1024), (1024, 12)]
    np.testing.assert_allclose(weights[1], 0.0 if he_normal else 0.1)

    check_whole_batch(
        lambda x: ops.reshape(layer(x, LABELS), (3, 12)),
        [CAPSULES.astype("float64")],
        one_by_one(lambda x: numpy_oracle.decoder(x, LABELS, weights)),
    )


def test_labels_of_several_classes():
    k_hot = np.array([[1, 0, 1, 0], [0, 0, 0, 0], [0, 1, 0, 0]])
    found = layers.mask_capsules(CAPSULES, k_hot)
    np.testing.assert_array_equal(found, CAPSULES * k_hot[..., None])
