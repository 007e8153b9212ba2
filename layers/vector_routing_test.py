import numpy as np
import pytest
from scipy.special import expit

import layers
from testing.gradients import check_whole_batch, one_by_one, to_numpy

RNG = np.random.default_rng(31)
B, I, O, A, E = 2, 4, 3, 2, 3  # noqa: E741
VALID = np.array([[1, 1, 1, 1], [1, 1, 0, 0]], bool)


def normalized(vector):
    if len(vector) == 1:
        return vector
    return (vector - vector.mean()) / np.sqrt(vector.var() + 1e-5)


def loops(layer, x, weights, valid=None):
    """Outputs, credits and shares, with formed votes."""
    w = dict(zip(layer.named, weights, strict=True))
    batch, inputs, _ = x.shape
    outputs, atoms = w["vote_bias"].shape
    valid = np.ones((batch, inputs), bool) if valid is None else valid
    result = np.zeros((batch, outputs, atoms))
    credits = np.zeros((batch, inputs, outputs))
    shares = np.zeros((layer.num_routing, batch, inputs, outputs))
    for b, present in enumerate(valid):
        u, rows = x[b, present], np.flatnonzero(present)
        if layer.any_number:
            price, rows = u @ w["price"] + w["price_bias"], 0 * rows
        else:
            price = w["price"][rows]
        scaled = u / np.sqrt(len(u))
        f = (scaled * w["activation"][rows]).sum(axis=1)
        f = expit(f + w["activation_bias"][rows])[:, None]
        votes = (scaled[:, None] * w["vote_scale"]) @ w["vote"] + w["vote_bias"]
        for t in range(layer.num_routing):
            r = np.ones((len(u), outputs))
            if t:
                p = np.stack([*map(normalized, result[b])]) @ w["prediction"]
                p = p * w["prediction_scale"] + w["prediction_bias"]
                r = w["match"][rows] * (u @ p.T) + w["match_bias"][rows]
                r = expit(r)
            r = r / r.sum(axis=1, keepdims=True)
            shares[t, b, present] = r
            credit = price[:, :outputs] * f * r
            credit -= price[:, outputs:] * f * (1 - r)
            credits[b, present] = credit
            result[b] = (credit[..., None] * votes).sum(axis=0)
        if layer.normalize:
            result[b] = [normalized(capsule) for capsule in result[b]]
    return result, credits, shares


@pytest.mark.parametrize("mask", [None, VALID])
@pytest.mark.parametrize("any_number", [False, True])
@pytest.mark.parametrize(
    ("num_routing", "normalize", "atoms"),
    [(1, True, E), (2, True, E), (3, False, E), (2, True, 1)],
)
def test_equals_loops(num_routing, normalize, atoms, any_number, mask):
    layer = layers.VectorRouting(O, atoms, num_routing, normalize, any_number)
    layer.build((None, I, A))
    weights = [RNG.normal(size=w.shape) for w in layer.weights]
    layer.set_weights(weights)  # normal ones have no zeros
    x = RNG.normal(size=(B, I, A))
    if mask is not None:
        x[~mask] = np.nan  # padding
    arguments = [x, *weights]

    def function(x, *weights):
        return layer.stateless_call(list(weights), [], x, mask=mask)[0]

    oracle = one_by_one(lambda x, *weights: loops(layer, x, weights, mask)[0])
    check_whole_batch(function, arguments, oracle)
    _, credits, shares = loops(layer, x, weights, mask)
    x = x.astype("float32")
    for ours, theirs in (
        (layer.credit(x, mask), credits),
        (layer.couplings(x, mask), shares),
    ):
        np.testing.assert_allclose(to_numpy(ours), theirs, atol=1e-5)


def test_counts_of_the_published_head():
    layer = layers.VectorRouting(10, 1)
    layer.build((None, 64, 1024))
    assert layer.count_params() == 100_938
    assert layer.multiply_adds((None, 64, 1024)) == 64 * 1024 + 1024 * 10


def test_initial_deviations_are_those_of_the_author():
    layer = layers.VectorRouting(300, 400)
    layer.build((None, 200, 100))
    found = {w.name: float(np.std(to_numpy(w))) for w in layer.weights}
    expected = {"activation": 0.2, "vote": 0.2, "prediction": 0.05}
    expected |= {"match": 0.1, "vote_scale": 1, "price": 1, "vote_bias": 0}
    found = {name: found[name] for name in expected}
    assert found == pytest.approx(expected, rel=0.03)
