import numpy as np
import pytest
from keras import ops

import layers
from layers import EMOptions
from testing import em_oracle
from testing.gradients import value_and_gradients

BETA_U = np.array([0.3, -0.2, 1.4], "float32")
BETA_A = np.array([20.0, -50.0, 0.0], "float32")


def example(children=4, size=0.5):
    generator = np.random.default_rng(21)
    votes = generator.normal(size=(2, children, 3, 16)) * size
    return votes, generator.uniform(size=(2, children))


def oracle(votes, activations, **options):
    """The same as a graph of one position."""
    copies, children, types, _ = votes.shape
    edges = {
        (i, ((0, 0), o)): votes[:, i, o] for i, o in np.ndindex(children, types)
    }
    of_child = {i: activations[:, i] for i in range(children)}
    betas = [np.broadcast_to(b, (copies, types)) for b in (BETA_U, BETA_A)]
    poses, probabilities, history = em_oracle.em_routing(
        edges, of_child, *betas, **options
    )
    parents = [((0, 0), o) for o in range(types)]
    return (
        np.stack([poses[j] for j in parents], axis=1),
        np.stack([probabilities[j] for j in parents], axis=1),
        np.array(
            [
                [[shares[i, j] for j in parents] for i in range(children)]
                for shares in history
            ]
        ).transpose(0, 3, 1, 2),
    )


@pytest.mark.parametrize("num_routing", [1, 2, 3])
def test_routing_and_assignments_equal_loops(num_routing):
    votes, activations = example()
    expected = oracle(votes, activations, num_routing=num_routing)
    arguments = (votes, activations, BETA_U, BETA_A, EMOptions(num_routing))
    poses, probabilities = layers.em_routing(*arguments)
    assignments = layers.em_assignments(*arguments)
    for ours, loops in zip(
        (poses, probabilities, assignments), expected, strict=True
    ):
        np.testing.assert_allclose(
            ops.convert_to_numpy(ours), loops, rtol=1e-4, atol=1e-5
        )
    np.testing.assert_allclose(
        ops.convert_to_numpy(assignments).sum(axis=-1), 1, atol=1e-6
    )


@pytest.mark.parametrize("function", [layers.em_routing, layers.em_assignments])
def test_without_positions_assignments_cannot_sum_over_them(function):
    votes, activations = example()
    with pytest.raises(ValueError, match="must be parents or types"):
        function(
            *(votes, activations, BETA_U, BETA_A),
            EMOptions(normalise="positions"),
        )


def test_routing_takes_any_leading_axes():
    votes, activations = example()
    poses, probabilities = layers.em_routing(
        votes[None], activations[None], BETA_U, BETA_A
    )
    assert poses.shape == (1, 2, 3, 16)
    alone = layers.em_routing(votes[1], activations[1], BETA_U, BETA_A)
    for many, one in zip((poses, probabilities), alone, strict=True):
        np.testing.assert_allclose(
            ops.convert_to_numpy(many)[0, 1],
            ops.convert_to_numpy(one),
            rtol=1e-5,
            atol=1e-6,
        )


@pytest.mark.parametrize("min_variance", [5e-4, 1e-9])
@pytest.mark.parametrize(
    ("children", "active", "size"),
    [(1, 1.0, 1.0), (4, 0.0, 1.0), (1, 0.0, 1.0), (4, 1.0, 30.0), (4, 1.0, 0)],
)
def test_all_is_finite(children, active, size, min_variance):
    votes, activations = example(children, size)
    cotangent = np.ones((2, 3, 17))

    def route(votes, activations, beta_u, beta_a):
        poses, probabilities = layers.em_routing(
            votes,
            activations,
            beta_u,
            beta_a,
            EMOptions(min_variance=min_variance),
        )
        return ops.concatenate([poses, probabilities[..., None]], axis=-1)

    value, gradients = value_and_gradients(
        route, [votes, activations * active, BETA_U, BETA_A], cotangent
    )
    for array in (value, *gradients):
        assert np.isfinite(array).all()
    if not active:
        np.testing.assert_array_equal(value[..., :16], 0)


def test_votes_far_from_zero_lose_no_digits():
    votes, activations = example()
    # float32 has 50 exactly, and the sums with it to 4e-6.
    near = layers.em_routing(votes, activations, BETA_U, BETA_A)
    far = layers.em_routing(votes + 50.0, activations, BETA_U, BETA_A)
    np.testing.assert_allclose(
        ops.convert_to_numpy(far[0]) - 50.0,
        ops.convert_to_numpy(near[0]),
        atol=1e-3,
    )
    np.testing.assert_allclose(
        ops.convert_to_numpy(far[1]), ops.convert_to_numpy(near[1]), atol=1e-4
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_routing": 0}, "num_routing must be a positive integer.*0"),
        ({"num_routing": True}, "num_routing must be a positive integer"),
        ({"final_lambda": 0}, "final_lambda must be positive"),
        ({"min_variance": -1.0}, "min_variance must be positive"),
        ({"damping": 1.0}, "damping must be at least 0 and less than 1"),
        ({"normalise": "all"}, "one of parents, types, positions.*'all'"),
    ],
)
def test_options_refuse_wrong_values(values, message):
    with pytest.raises(ValueError, match=message):
        EMOptions(**values)
