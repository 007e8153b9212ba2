import dataclasses

import numpy as np
import pytest

from input_data import features as keys
from input_data.images import LabelledImages, make_pipeline
from input_data.options import Options
from input_data.pairs import SeparatePairs
from input_data.registry import load
from input_data.splits import Split
from old.errors import UserError
from testing import tiny_files

OPTIONS = Options(num_targets=2, pairs="below")


def load_digits(**options):
    return load("digits", Split.TEST, dataclasses.replace(OPTIONS, **options))


def everything(pipeline):
    """All examples in one batch, x and y in one dict each."""
    ((x, y),) = pipeline.evaluation_batches(pipeline.spec.num_examples)
    return x, y


def digits():
    """The test images of one digit each, and their labels."""
    x, _ = everything(load("digits", Split.TEST, Options(num_targets=1)))
    return x[keys.IMAGES], x[keys.RECONS_LABEL]


@pytest.mark.parametrize(
    ("pairs", "size", "axis"),
    [("below", (56, 28), 1), ("beside", (28, 56), 2)],
)
def test_pairs_are_two_test_images_without_overlap(pairs, size, axis):
    pipeline = load_digits(pairs=pairs)
    spec = pipeline.spec
    assert spec.shape == keys.ImageShape(*size, 1, 10)
    assert spec.num_targets == 2
    x, y = everything(pipeline)
    first, second = np.split(x[keys.IMAGES], 2, axis)
    images, labels = digits()
    for halves, name in (
        (first, keys.RECONS_LABEL),
        (second, keys.SPARE_LABEL),
    ):
        known = {
            image.tobytes(): label
            for image, label in zip(images, labels, strict=True)
        }
        found = [known[half.tobytes()] for half in halves]
        np.testing.assert_array_equal(x[name], found)
    k_hot = np.eye(10)[x[keys.RECONS_LABEL]] + np.eye(10)[x[keys.SPARE_LABEL]]
    np.testing.assert_array_equal(y[keys.LOGITS], k_hot)
    assert k_hot.max() == 1
    blank = np.zeros_like(first)
    np.testing.assert_array_equal(
        y[keys.RECONS], np.concatenate([first, blank], axis)
    )
    np.testing.assert_array_equal(
        y[keys.SPARE_RECONS], np.concatenate([blank, second], axis)
    )


def test_each_image_is_in_at_most_two_pairs_and_few_are_left_out():
    x, _ = everything(load_digits())
    images, _ = digits()
    first, second = np.split(x[keys.IMAGES], 2, 1)
    for halves in (first, second):
        assert len({half.tobytes() for half in halves}) == len(halves)
    # About a tenth of the pairs is of one class.
    assert 0.85 * len(images) < len(first) < 0.95 * len(images)
    # In the order of the images, those left out missing.
    places = {image.tobytes(): n for n, image in enumerate(images)}
    assert (np.diff([places[half.tobytes()] for half in first]) > 0).all()


def test_pairs_depend_on_the_seed_alone():
    def pairs(**options):
        return everything(load_digits(**options))[0][keys.IMAGES]

    np.testing.assert_array_equal(pairs(seed=1), pairs(seed=1))
    one, other = pairs(seed=1), pairs(seed=2)
    assert len(one) != len(other) or (one != other).any()
    # The same two stand below each other and beside each other.
    np.testing.assert_array_equal(
        np.split(pairs(seed=1, pairs="beside"), 2, 2), np.split(one, 2, 1)
    )
    np.testing.assert_array_equal(pairs(seed=1, eval_size=7), one[:7])
    # What moves training images does not move these.
    np.testing.assert_array_equal(pairs(seed=1, shift=0), one)


def test_batches_of_any_size_are_the_same_pairs():
    pipeline = load_digits()
    x, _ = everything(pipeline)
    parts = [part[keys.IMAGES] for part, _ in pipeline.evaluation_batches(100)]
    np.testing.assert_array_equal(np.concatenate(parts), x[keys.IMAGES])


def test_a_border_surrounds_each_of_the_two():
    assert load_digits(pad=4).spec.shape == keys.ImageShape(72, 36, 1, 10)


def test_photographs_are_put_together_too(tmp_path):
    tiny_files.write_cifar10(tmp_path)
    pipeline = load(
        "cifar10",
        Split.TEST,
        dataclasses.replace(OPTIONS, data_dir=str(tmp_path), pairs="beside"),
    )
    assert pipeline.spec.shape == keys.ImageShape(24, 48, 3, 10)
    assert pipeline.spec.class_names[0] == "airplane"
    x, _ = everything(pipeline)
    assert (x[keys.RECONS_LABEL] != x[keys.SPARE_LABEL]).all()


@pytest.mark.parametrize(
    ("options", "split", "message"),
    [
        ({"num_targets": 1}, Split.TEST, "below puts two .*--num_targets=2"),
        ({}, Split.TRAIN, "--pairs=below is for evaluation.*--train=false"),
    ],
)
def test_what_pairs_are_not_for_is_refused(options, split, message):
    with pytest.raises(UserError, match=message):
        load("digits", split, dataclasses.replace(OPTIONS, **options))


def test_images_of_one_class_make_no_pairs():
    data = LabelledImages(np.zeros((5, 4, 4, 1), np.uint8), np.zeros(5), 3)
    singles = make_pipeline(data, Options(num_targets=1))
    with pytest.raises(UserError, match="at least two classes"):
        SeparatePairs(singles, OPTIONS)
