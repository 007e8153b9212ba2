from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from input_data.features import ImageShape
from models.registry import build_model
from common.errors import UserError
from testing import numpy_oracle
from testing.small_models import small_hparams
from testing.tiny_subject import make_subject
from visualisation import routing
from visualisation.trained_model_test import example_of

# The layer whose positions the couplings are of.
LOWER_CAPSULES = {
    "capsule": "conv_capsule1",
    "shared_capsule": "conv4",
    "matrix_capsule": "conv_capsules2/poses",
}


def couplings_in_numpy(subject, images):
    """[iterations, N, h, w, types, classes], by loops over the positions."""
    model = subject.model
    primary = keras.ops.convert_to_numpy(
        model.activations(images)["conv_capsule1"]
    ).astype("float64")
    count, height, width, types, _ = primary.shape
    weights, biases = map(keras.ops.convert_to_numpy, model.capsule2.weights)
    votes = []
    for row in range(height):
        for column in range(width):
            for kind in range(types):
                number = (row * width + column) * types + kind
                votes.append(primary[:, row, column, kind] @ weights[number])
    votes = np.stack(votes, axis=1).reshape(count, len(votes), *biases.shape)
    _, couplings = numpy_oracle.routing_steps(
        votes,
        np.broadcast_to(biases, (count, *biases.shape)).astype("float64"),
        model.capsule2.num_routing,
        model.capsule2.leaky,
    )
    return couplings.reshape(-1, count, height, width, types, len(biases))


@pytest.mark.parametrize("leaky", [False, True])
def test_couplings_equal_an_explicit_routing(leaky):
    subject = make_subject(leaky=leaky, padding="SAME", routing=4)
    # Weights so large that the couplings become unequal.
    for weight in subject.model.capsule2.weights:
        weight.assign(12 * weight)
    ((x, _),) = subject.pipeline.evaluation_batches(2, stop=2)
    couplings, leaks = routing.couplings_of(subject, x["images"])
    assert leaks == leaky
    assert couplings.shape == (4, 2, 14, 14, 2, 10)
    expected = couplings_in_numpy(subject, x["images"])
    np.testing.assert_allclose(couplings, expected, atol=1e-4)
    assert couplings[-1].std() > 0.01
    total = couplings.sum(axis=-1)
    if leaky:
        assert (total < 1).all()
    else:
        np.testing.assert_allclose(total, 1, atol=1e-5)
    maps = routing.by_position(couplings)
    np.testing.assert_allclose(
        maps[3, 1, 2, 5, 7],
        couplings[3, 1, 2, 5, 0, 7] + couplings[3, 1, 2, 5, 1, 7],
        rtol=1e-6,
    )


def test_entropy_by_hand():
    equal, certain, uneven = [1 / 4] * 4, [0, 1, 0, 0], [1 / 2, 1 / 4, 1 / 4, 0]
    couplings = np.array(
        [[[equal, equal]], [[equal, certain]], [[uneven, uneven]]]
    )
    np.testing.assert_allclose(
        routing.mean_entropy(couplings, leaky=False),
        np.log(2) * np.array([2.0, 1.0, 1.5]),
        atol=1e-12,
    )


def test_entropy_counts_the_share_that_leaks():
    couplings = np.array([[[1 / 4] * 3], [[1 / 2, 0, 0]], [[0, 0, 0]]])
    np.testing.assert_allclose(
        routing.mean_entropy(couplings, leaky=True),
        np.log([4, 2, 1]),
        atol=1e-12,
    )


def test_entropy_of_a_network_starts_at_equal_shares():
    for leaky, shares in ((False, 10), (True, 11)):
        subject = make_subject(leaky=leaky)
        image = next(subject.examples()).image
        couplings, _ = routing.couplings_of(subject, image[None])
        entropy = routing.mean_entropy(couplings, leaky)
        np.testing.assert_allclose(entropy[0], np.log(shares), rtol=1e-6)
        assert (np.diff(entropy) < 0).all()


@pytest.mark.parametrize("iterations", [1, 3])
def test_files(iterations):
    subject = make_subject(routing=iterations, remake=False)
    files = routing.make(subject, 1)
    assert set(files) == {"routing.png", "routing_entropy.png"}


# Attention has no iteration of equal shares.
@pytest.mark.parametrize("model", ["capsule", "efficient_capsule"])
def test_equal_shares_are_white(monkeypatch, model):
    figures = []
    monkeypatch.setattr(routing, "png", figures.append)
    subject = make_subject(model=model)
    routing.make(subject, 1)
    low, high = figures[0].axes[1].images[0].get_clim()
    num_types = subject.model.hparams.num_prime_capsules
    assert (low + high) / 2 == pytest.approx(num_types / 10)


def test_all_predicted_classes_and_the_next_are_shown():
    one, two = (
        example_of([0.3, 0.9, 0.1, 0.5], labels) for labels in ((1,), (0, 1))
    )
    assert routing.shown_classes(one) == [
        (1, "predicted"),
        (3, "not predicted"),
    ]
    assert routing.shown_classes(two) == [
        (1, "predicted"),
        (3, "predicted"),
        (0, "not predicted"),
    ]
    # Images of two classes may show both.
    none_left = example_of([0.3, 0.9], (0, 1))
    assert routing.shown_classes(none_left) == [
        (1, "predicted"),
        (0, "predicted"),
    ]


def test_a_network_that_does_not_route_is_refused(monkeypatch):
    subject = make_subject()
    monkeypatch.setattr(type(subject.model), "routing_of", lambda *_: None)
    with pytest.raises(UserError, match="tiny has no routing by agreement"):
        routing.make(subject)


def test_more_examples_than_a_batch_are_refused():
    with pytest.raises(UserError, match="at most 100 .*=101 is too much"):
        routing.make(make_subject(), 101)


def test_the_axis_of_entropies_has_them_in_full(monkeypatch):
    figures = []
    monkeypatch.setattr(routing, "png", figures.append)
    subject = SimpleNamespace(name="any")
    routing._draw_entropy(subject, np.array([2.30258, 2.30225]), 10, 100)
    (figure,) = figures
    figure.draw_without_rendering()
    assert figure.axes[0].yaxis.get_offset_text().get_text() == ""


@pytest.mark.parametrize(
    ("name", "hparams"),
    [
        ("capsule", {}),
        ("capsule", {"padding": "SAME"}),
        ("shared_capsule", {}),
        ("matrix_capsule", {}),
        ("matrix_capsule", {"padding": "SAME"}),
    ],
)
def test_couplings_stand_in_the_middle_of_what_their_capsules_see(
    name, hparams
):
    size = (32, 36)
    hparams = small_hparams(name, **hparams)
    model = build_model(name, ImageShape(*size, 1, 3), 1, hparams)
    images = tf.random.stateless_uniform((1, *size, 1), [1, 2])
    routed = model.routing_of(images)
    rows, columns = routed.couplings.shape[2:4]
    top, left, height, width = routing.map_of(routed.receptive_field, size)
    # No padding cuts what the capsules of the middle see.
    row, column = rows // 2, columns // 2
    with tf.GradientTape() as tape:
        tape.watch(images)
        capsules = model.activations(images)[LOWER_CAPSULES[name]]
        there = tf.reduce_sum(capsules[0, row, column] ** 2)
    gradient = abs(tape.gradient(there, images).numpy()[0, ..., 0])
    for axis, middle in (
        (1, top + (row + 0.5) * height / rows),
        (0, left + (column + 0.5) * width / columns),
    ):
        seen = np.flatnonzero(gradient.max(axis=axis) > 1e-5 * gradient.max())
        assert (seen[0] + seen[-1] + 1) / 2 == pytest.approx(middle)


def test_one_position_sees_the_whole_image():
    assert routing.map_of((), (28, 36)) == (0, 0, 28, 36)
