import numpy as np
import pytest

from common.errors import UserError
from input_data import keys
from input_data.images import LabeledImages, make_pipeline
from input_data.pairs import SeparatePairs
from input_data.registry import Split
from testing.splits import batches, load, resolved, single_pixels

PAIRS = {"num_targets": 2, "pairs": "below", "train": False}


@pytest.mark.parametrize("training", [True, False])
def test_pairs_are_merged_shifted_and_uniform(training):
    config = resolved(num_targets=2, eval_size=9000)
    pipeline = make_pipeline(single_pixels(), config)
    assert pipeline.spec.shape == keys.ImageShape(17, 17, 1, 10)
    pairs = np.zeros((10, 10))
    places = np.zeros((2, 17, 17))
    same_offset = 0
    examples = pipeline.evaluation_batches(4500)
    for x, y in batches(pipeline, 4500, 0, 2) if training else examples:
        first, second = y[keys.RECONS], y[keys.SPARE_RECONS]
        merged = np.minimum(first + second, 1)
        np.testing.assert_allclose(x[keys.IMAGES], merged, atol=1e-6)
        for target, image in enumerate((first, second)):
            pixel = 25 * (x[keys.LABEL_BY_TARGET[target]] + 1) / 255
            found = image.max(axis=(1, 2, 3))
            np.testing.assert_allclose(found, pixel, atol=1e-6)
            assert ((image > 0).sum(axis=(1, 2, 3)) == 1).all()
            places[target] += (image[..., 0] > 0).sum(axis=0)
        same_offset += ((first > 0) & (second > 0)).sum()
        assert (first + second).max() > 1.5  # cut at white
        np.add.at(pairs, (x[keys.RECONS_LABEL], x[keys.SPARE_LABEL]), 1)
    assert np.diag(pairs).max() == 0
    # Each image is first equally often; 100 expected for each pair.
    np.testing.assert_array_equal(pairs.sum(axis=1), 900)
    off_diagonal = pairs[~np.eye(10, dtype=bool)]
    assert np.abs(off_diagonal - 100).max() < 5 * 10
    for target in range(2):
        inner = places[target, 4:13, 4:13]
        assert inner.sum() == 9000
        assert np.abs(inner - 9000 / 81).max() < 5 * np.sqrt(9000 / 81)
    # The two shifts are independent: equal in 1 of 81 pairs.
    assert np.abs(same_offset - 9000 / 81) < 5 * np.sqrt(9000 / 81)


def load_digits(**settings):
    return load("digits", Split.TEST, **{**PAIRS, **settings})


def everything(pipeline):
    """All examples in one batch (x, y)."""
    ((x, y),) = pipeline.evaluation_batches(pipeline.spec.num_examples)
    return x, y


@pytest.mark.parametrize(
    ("pairs", "size", "axis"), [("below", (56, 28), 1), ("beside", (28, 56), 2)]
)
def test_pairs_are_two_test_images_without_overlap(pairs, size, axis):
    pipeline = load_digits(pairs=pairs)
    spec = pipeline.spec
    assert spec.shape == keys.ImageShape(*size, 1, 10)
    assert spec.num_targets == 2
    x, y = everything(pipeline)
    first, second = np.split(x[keys.IMAGES], 2, axis)
    single, _ = everything(load("digits", Split.TEST))
    images = [image.tobytes() for image in single[keys.IMAGES]]
    known = dict(zip(images, single[keys.RECONS_LABEL], strict=True))
    for halves, name in zip((first, second), keys.LABEL_BY_TARGET, strict=True):
        found = [half.tobytes() for half in halves]
        np.testing.assert_array_equal(x[name], [known[half] for half in found])
        assert len(set(found)) == len(found)  # each image once
    # About a tenth of the pairs is of one class.
    assert 0.85 * len(images) < len(first) < 0.95 * len(images)
    k_hot = np.eye(10)[x[keys.RECONS_LABEL]] + np.eye(10)[x[keys.SPARE_LABEL]]
    np.testing.assert_array_equal(y[keys.LABELS], k_hot)
    assert k_hot.max() == 1
    blank = np.zeros_like(first)
    targets = (first, blank), (blank, second)
    for name, halves in zip(keys.RECONS_BY_TARGET, targets, strict=True):
        np.testing.assert_array_equal(y[name], np.concatenate(halves, axis))


def test_pairs_depend_on_the_seed_alone():
    def pairs(**settings):
        return everything(load_digits(**settings))[0][keys.IMAGES]

    np.testing.assert_array_equal(pairs(seed=1), pairs(seed=1))
    one, other = pairs(seed=1), pairs(seed=2)
    assert len(one) != len(other) or (one != other).any()
    # The same two stand below each other and beside each other.
    beside = np.split(pairs(seed=1, pairs="beside"), 2, axis=2)
    np.testing.assert_array_equal(beside, np.split(one, 2, axis=1))
    np.testing.assert_array_equal(pairs(seed=1, eval_size=7), one[:7])
    # What moves training images does not move these.
    np.testing.assert_array_equal(pairs(seed=1, shift=0), one)
    settings = {"eval_size": 20, "pairs": "overlap"}
    for num_targets, differ in ((1, False), (2, True)):
        settings["num_targets"] = num_targets
        first, other = (pairs(seed=seed, **settings) for seed in (0, 1))
        assert (first != other).any() == differ


def test_images_of_one_or_several_classes_make_no_pairs():
    images = np.zeros((5, 4, 4, 1), np.uint8)
    for shape, message in ((5, "class"), ((5, 3), "needs images of one class")):
        data = LabeledImages(images, np.ones(shape, int), 3)
        with pytest.raises(UserError, match=message):
            make_pipeline(data, resolved(num_targets=2))
        with pytest.raises(UserError, match=message):
            SeparatePairs(make_pipeline(data, resolved()), resolved(**PAIRS))
