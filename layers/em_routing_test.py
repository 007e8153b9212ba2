import numpy as np
import pytest
from keras import ops

import layers
from layers import EMOptions
from testing import em_oracle
from testing.gradients import to_numpy, value_and_gradients

BETA_U = np.array([0.3, -0.2, 1.4], "float32")
BETA_A = np.array([20.0, -50.0, 0.0], "float32")


def example(children=4, size=0.5):
    rng = np.random.default_rng(21)
    votes = rng.normal(size=(2, children, 3, 16)) * size
    return votes, rng.uniform(size=(2, children))


def oracle(votes, activations, **options):
    """Poses, activations and assignments for a single parent position."""
    copies, children, types, _ = votes.shape
    edges = {
        ((i,), ((0, 0), o)): votes[:, i, o]
        for i, o in np.ndindex(children, types)
    }
    betas = [np.broadcast_to(b, (copies, types)) for b in (BETA_U, BETA_A)]
    out, history = em_oracle.layer(
        votes, activations, *betas, edges, (1, 1), **options
    )
    shares = np.array([[by_edge[e] for e in edges] for by_edge in history])
    shares = np.moveaxis(shares.reshape(-1, children, types, copies), 3, 1)
    return out[:, 0, 0, :, :16], out[:, 0, 0, :, 16], shares


@pytest.mark.parametrize("num_routing", [1, 2, 3])
def test_routing_and_assignments_equal_loops(num_routing):
    votes, activations = example()
    expected = oracle(votes, activations, num_routing=num_routing)
    arguments = (votes, activations, BETA_U, BETA_A, EMOptions(num_routing))
    poses, probabilities = layers.em_routing(*arguments)
    assignments = layers.em_assignments(*arguments)
    found = poses, probabilities, assignments
    for ours, loops in zip(found, expected, strict=True):
        np.testing.assert_allclose(to_numpy(ours), loops, rtol=1e-4, atol=1e-5)


def test_routing_takes_any_leading_axes():
    votes, activations = example()
    poses, probabilities = layers.em_routing(
        votes[None], activations[None], BETA_U, BETA_A
    )
    assert poses.shape == (1, 2, 3, 16)
    alone = layers.em_routing(votes[1], activations[1], BETA_U, BETA_A)
    for many, one in zip((poses, probabilities), alone, strict=True):
        np.testing.assert_allclose(to_numpy(many[0, 1]), to_numpy(one), 1e-5)
    with pytest.raises(ValueError, match="`activations` must have the shape"):
        layers.em_routing(votes, activations[0], BETA_U, BETA_A)
    with pytest.raises(ValueError, match="`beta_u` must have the shape"):
        layers.em_routing(votes, activations, BETA_U[:1], BETA_A)
    with pytest.raises(ValueError, match="`votes` must have the shape"):
        layers.em_routing(votes[..., :9], activations, BETA_U, BETA_A)


@pytest.mark.parametrize("min_variance", [5e-4, 1e-9])
@pytest.mark.parametrize(
    ("children", "active", "size"),
    [(1, 1.0, 1.0), (4, 0.0, 1.0), (1, 0.0, 1.0), (4, 1.0, 30.0), (4, 1.0, 0)],
)
def test_values_and_gradients_are_finite(children, active, size, min_variance):
    votes, activations = example(children, size)

    def route(*arguments):
        options = EMOptions(min_variance=min_variance)
        poses, probabilities = layers.em_routing(*arguments, options)
        return ops.concatenate([poses, probabilities[..., None]], axis=-1)

    arguments = [votes, activations * active, BETA_U, BETA_A]
    value, _ = value_and_gradients(route, arguments, np.ones((2, 3, 17)))
    if not active:
        expected, chances, _ = oracle(*arguments[:2])
        expected = np.concatenate([expected, chances[..., None]], axis=-1)
        np.testing.assert_allclose(value, expected, rtol=1e-5)


def test_votes_far_from_zero_lose_no_digits():
    votes, activations = example()
    # 50 is exact in float32, and sums with it have errors below 4e-6.
    near = layers.em_routing(votes, activations, BETA_U, BETA_A)
    far = layers.em_routing(votes + 50.0, activations, BETA_U, BETA_A)
    poses, far_poses = (to_numpy(each[0]) for each in (near, far))
    np.testing.assert_allclose(far_poses - 50.0, poses, atol=1e-3)
    np.testing.assert_allclose(to_numpy(far[1]), to_numpy(near[1]), atol=1e-4)


@pytest.mark.parametrize("values", [{"num_routing": 0}, {"normalise": "all"}])
def test_invalid_options_are_errors(values):
    with pytest.raises(ValueError, match="Received"):
        EMOptions(**values)
