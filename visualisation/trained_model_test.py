import dataclasses
import itertools

import numpy as np
import pytest

from common.errors import UserError
from testing.tiny_subject import (
    NUM_EXAMPLES,
    decoder_in_numpy,
    make_subject,
)
from visualisation.trained_model import Example


def example_of(lengths, labels):
    return Example(None, None, labels, None, np.array(lengths))


@pytest.mark.parametrize(
    ("lengths", "labels", "predictions", "is_right"),
    [
        ([0.1, 0.9, 0.2], (1,), (1,), True),
        ([0.1, 0.9, 0.2], (2,), (1,), False),
        ([0.9, 0.9, 0.2], (1,), (0,), False),  # ties to the lower class
        ([0.5, 0.9, 0.2], (0, 1), (0, 1), True),
        ([0.5, 0.9, 0.2], (1, 0), (1, 0), True),
        ([0.5, 0.9, 0.2], (2, 1), (0, 1), False),
        ([0.5, 0.9, 0.2], (1, 2), (1, 0), False),
        ([0.5, 0.9, 0.2, 0.1], (3, 2), (1, 0), False),
    ],
)
def test_predictions(lengths, labels, predictions, is_right):
    example = example_of(lengths, labels)
    assert example.predictions == predictions
    assert example.is_right == is_right


def test_classes_have_the_names_of_the_data_set(monkeypatch):
    subject = make_subject(2)
    example = example_of([0.1, 0.9, 0.2, 0.8], (3, 0))
    assert subject.verdict(example) == {
        "true": "3 and 0",
        "predicted": "3 and 1",
    }
    names = ["cat", "truck", "bird", "a name that is far too long"]
    spec = dataclasses.replace(subject.pipeline.spec, class_names=names)
    monkeypatch.setattr(subject.pipeline, "spec", spec)
    assert subject.verdict(example) == {
        "true": "a name that i… and cat",
        "predicted": "a name that i… and truck",
    }
    assert subject.names_of([3], str) == names[3]


@pytest.mark.parametrize("num_targets", [1, 2])
def test_examples_are_the_test_images_in_order(num_targets):
    subject = make_subject(num_targets)
    examples = list(subject.examples())
    assert len(examples) == NUM_EXAMPLES
    ((x, y),) = subject.pipeline.evaluation_batches(NUM_EXAMPLES)
    outputs = subject.model(x)
    for number in (0, 7, 99, 100, NUM_EXAMPLES - 1):
        example = examples[number]
        np.testing.assert_array_equal(example.image, x["images"][number])
        names = ("recons", "spare_recons")[:num_targets]
        for target, name in zip(example.targets, names, strict=True):
            np.testing.assert_array_equal(target, y[name][number])
        assert set(example.labels) == set(np.flatnonzero(y["logits"][number]))
        np.testing.assert_allclose(
            example.capsules, outputs["capsules"][number], atol=1e-6
        )
        np.testing.assert_allclose(
            example.lengths,
            np.sqrt((example.capsules**2).sum(axis=1)),
            atol=1e-6,
        )


def test_right_and_wrong_are_the_first_of_their_kind():
    subject = make_subject()
    right, wrong = subject.right_and_wrong(4)
    examples = list(subject.examples())
    for chosen, is_right in ((right, True), (wrong, False)):
        expected = [e for e in examples if e.is_right == is_right][:4]
        assert chosen
        for ours, theirs in zip(chosen, expected, strict=True):
            np.testing.assert_array_equal(ours.image, theirs.image)


def test_redrawing_masks_all_but_the_class():
    subject = make_subject()
    example = next(subject.examples())
    images = subject.redraw_example(example, [4, 9])
    assert images.shape == (2, 28, 28, 1)
    for image, label in zip(images, [4, 9], strict=True):
        expected = decoder_in_numpy(subject, example.capsules[label], label)
        np.testing.assert_allclose(image, expected, atol=1e-5)
    assert np.abs(images[0] - images[1]).max() > 1e-3


def test_with_a_true_label_it_is_the_models_own_remake():
    subject = make_subject(2)
    ((x, _),) = subject.pipeline.evaluation_batches(5, stop=5)
    outputs = subject.model(x)
    examples = itertools.islice(subject.examples(), 5)
    for number, example in enumerate(examples):
        first, second = subject.redraw_example(example, example.labels)
        np.testing.assert_allclose(first, outputs["recons"][number], atol=1e-5)
        np.testing.assert_allclose(
            second, outputs["spare_recons"][number], atol=1e-5
        )


def test_a_network_without_capsules_is_refused():
    with pytest.raises(UserError, match="tiny has no capsules"):
        make_subject(model="baseline")


def test_a_network_without_a_decoder_cannot_redraw():
    subject = make_subject(remake=False)
    with pytest.raises(UserError, match="trained with remake=false"):
        subject.require_decoder()


def test_a_model_without_a_decoder_says_so():
    with pytest.raises(UserError, match="redraw images with: its model has"):
        make_subject(model="shared_capsule").require_decoder()
