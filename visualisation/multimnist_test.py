import numpy as np
import pytest

from common.errors import UserError
from testing.tiny_subject import decoder_in_numpy, make_subject
from visualisation import multimnist
from visualisation.trained_model_test import example_of


def test_the_absent_class_is_neither_label_nor_prediction():
    example = example_of([0.9, 0.8, 0.7, 0.6, 0.1], (2, 0))
    assert example.predictions == (1, 0)
    assert multimnist.absent_class(example) == 3


def test_no_class_is_absent():
    with pytest.raises(UserError, match="all 3 are labels or predicted"):
        multimnist.absent_class(example_of([0.9, 0.8, 0.7], (1, 2)))


def test_panels():
    subject = make_subject(2)
    right, wrong = subject.right_and_wrong(1)

    def remake(example, label):
        return decoder_in_numpy(subject, example.capsules[label], label)[..., 0]

    for example in right + wrong:
        images = multimnist.panels(subject, example)
        np.testing.assert_array_equal(
            images["input"][..., 2], example.image[..., 0]
        )
        absent = multimnist.absent_class(example)
        expected = {
            "targets": example.targets[..., 0],
            "remakes of\nlabels": [remake(example, c) for c in example.labels],
            "remakes of\npredictions": [
                remake(example, c) for c in example.predictions
            ],
            "label 1 and\na class that\nis not there": [
                remake(example, example.labels[0]),
                remake(example, absent),
            ],
        }
        if example.is_right:
            assert images["remakes of\npredictions"] is None
            del expected["remakes of\npredictions"]
        for row, (magenta, green) in expected.items():
            for channel, values in enumerate([magenta, green, magenta]):
                np.testing.assert_allclose(
                    images[row][..., channel], values, atol=1e-5
                )
    assert wrong


def test_one_object_in_an_image_is_refused():
    with pytest.raises(UserError, match="trained with --num_targets=2"):
        multimnist.make(make_subject(1))
