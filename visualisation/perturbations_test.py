import numpy as np
import pytest

from common.errors import UserError
from testing.tiny_subject import decoder_in_numpy, make_subject
from visualisation import perturbations


def test_offsets_are_the_papers():
    np.testing.assert_allclose(
        perturbations.OFFSETS,
        [-0.25, -0.2, -0.15, -0.1, -0.05, 0, 0.05, 0.1, 0.15, 0.2, 0.25],
        atol=1e-12,
    )


def test_perturbed_moves_one_dimension_at_a_time():
    capsule = np.array([0.5, -0.1, 0.3])
    moved = perturbations.perturbed(capsule)
    assert moved.shape == (3, 11, 3)
    for dimension in range(3):
        for number, offset in enumerate(perturbations.OFFSETS):
            expected = capsule.copy()
            expected[dimension] += offset
            np.testing.assert_allclose(moved[dimension, number], expected)


@pytest.mark.parametrize("num_targets", [1, 2])
def test_redrawn_images_are_those_of_the_moved_capsule(num_targets):
    subject = make_subject(num_targets)
    example = next(subject.examples())
    label = example.labels[0]
    images = perturbations.redrawn(subject, example, label)
    shape = subject.pipeline.spec.shape
    assert images.shape == (5, 11, shape.height, shape.width, 1)
    for dimension in range(5):
        for number in (0, 5, 10):
            capsule = example.capsules[label].copy()
            capsule[dimension] += 0.05 * (number - 5)
            np.testing.assert_allclose(
                images[dimension, number],
                decoder_in_numpy(subject, capsule, label),
                atol=1e-5,
            )


def test_one_figure_for_each_class_predicted_right():
    subject = make_subject()
    right = {e.labels[0] for e in subject.examples() if e.is_right}
    assert set(perturbations.make(subject)) == {
        f"perturbations_{label}.png" for label in right
    }
    first = next(e for e in subject.examples() if e.is_right).labels[0]
    assert list(perturbations.make(subject, 1)) == [
        f"perturbations_{first}.png"
    ]


def test_a_network_that_is_never_right_is_refused(monkeypatch):
    subject = make_subject()
    wrong = [e for e in subject.examples() if not e.is_right]
    monkeypatch.setattr(type(subject), "examples", lambda self: iter(wrong))
    with pytest.raises(UserError, match="no prediction is right"):
        perturbations.make(subject)
