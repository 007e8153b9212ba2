import math

import numpy as np
import pytest

from common.errors import UserError
from input_data import features as keys
from input_data import registry
from input_data.labelled_images import LabelledImages, make_pipeline
from input_data.registry import Options
from input_data.splits import Split


def one_pixel_images(count, size=9):
    """Black images with one white pixel in the middle."""
    images = np.zeros((count, size, size, 1), np.uint8)
    images[:, size // 2, size // 2] = 255
    return LabelledImages(images, np.arange(count) % 10, 10)


def batches(pipeline, batch_size, start, stop, seed=0):
    return list(pipeline.training_batches(batch_size, seed, start, stop))


def images_of(batch):
    return batch[0][keys.IMAGES].numpy()


@pytest.mark.parametrize(("shift", "pad"), [(None, None), (2, 0), (1, 3)])
def test_all_shifts_are_about_equally_often(shift, pad):
    pipeline = make_pipeline(
        one_pixel_images(10000), Options(shift=shift, pad=pad), default_shift=2
    )
    shift, pad = 2 if shift is None else shift, pad or 0
    size = 9 + 2 * pad
    images = images_of(batches(pipeline, 10000, 0, 1)[0])
    assert images.shape == (10000, size, size, 1)
    counts = images[..., 0].sum(axis=0)
    middle = slice(size // 2 - shift, size // 2 + shift + 1)
    expected = 10000 / (2 * shift + 1) ** 2
    assert counts[middle, middle].sum() == 10000
    assert np.abs(counts[middle, middle] - expected).max() < 5 * math.sqrt(
        expected
    )


def test_expanded_mnist_is_40_by_40_and_tests_are_in_the_middle():
    options = Options(shift=6, pad=6, eval_size=3)
    pipeline = registry.load("digits", Split.TEST, options)
    plain = registry.load("digits", Split.TEST, Options(eval_size=3))
    assert pipeline.spec.shape == keys.ImageShape(40, 40, 1, 10)
    (padded,), (original,) = (
        [images_of(batch) for batch in some.evaluation_batches(3)]
        for some in (pipeline, plain)
    )
    np.testing.assert_array_equal(
        padded, np.pad(original, ((0, 0), (6, 6), (6, 6), (0, 0)))
    )


def test_no_shift_leaves_images_as_they_are():
    data = one_pixel_images(4)
    pipeline = make_pipeline(data, Options(shift=0))
    images = images_of(batches(pipeline, 4, 0, 1)[0])
    np.testing.assert_array_equal(images * 255, data.images)


def test_distort_crops_in_training_and_in_testing():
    for split in Split:
        pipeline = registry.load("digits", split, Options(distort=True))
        assert pipeline.spec.shape == keys.ImageShape(24, 24, 1, 10)
        some = batches(pipeline, 5, 0, 1) + list(pipeline.evaluation_batches(7))
        for x, y in some:
            assert x[keys.IMAGES].shape[1:] == (24, 24, 1)
            np.testing.assert_array_equal(x[keys.IMAGES], y[keys.RECONS])


@pytest.mark.parametrize(
    "options",
    [
        Options(distort=True),
        Options(shift=6, pad=6),
        Options(num_targets=2, shift=1, pad=0),
    ],
)
def test_resumed_training_sees_the_same_batches(options):
    pipeline = registry.load("digits", Split.TRAIN, options)
    whole = batches(pipeline, 8, 0, 6, seed=7)
    resumed = batches(pipeline, 8, 4, 6, seed=7)
    for there, here in zip(whole[4:], resumed, strict=True):
        np.testing.assert_array_equal(images_of(there), images_of(here))
    other = batches(pipeline, 8, 4, 5, seed=8)[0]
    assert (images_of(other) != images_of(resumed[0])).any()


def test_pairs_with_another_shift_and_pad():
    options = Options(num_targets=2, shift=1, pad=2)
    pipeline = make_pipeline(one_pixel_images(5000), options)
    assert pipeline.spec.shape == keys.ImageShape(13, 13, 1, 10)
    _, y = batches(pipeline, 5000, 0, 1)[0]
    for key in keys.RECONS_BY_TARGET:
        counts = y[key].numpy()[..., 0].sum(axis=0)
        assert counts[5:8, 5:8].sum() == 5000
        assert np.abs(counts[5:8, 5:8] - 5000 / 9).max() < 5 * math.sqrt(
            5000 / 9
        )


def test_pairs_are_not_distorted():
    with pytest.raises(UserError, match="--distort is for one target"):
        registry.load(
            "digits", Split.TRAIN, Options(num_targets=2, distort=True)
        )


@pytest.mark.parametrize("num_targets", [1, 2])
def test_too_much_padding_is_refused(num_targets):
    options = Options(num_targets=num_targets, pad=10**6)
    message = r"--pad=1000000.*2000028x2000028, takes .* GB.*a smaller one"
    with pytest.raises(UserError, match=message):
        registry.load("digits", Split.TRAIN, options)


def test_pairs_need_two_classes():
    data = LabelledImages(np.zeros((3, 9, 9, 1), "uint8"), np.ones(3, int), 10)
    with pytest.raises(UserError, match="at least two classes"):
        make_pipeline(data, Options(num_targets=2))


@pytest.mark.parametrize(
    ("flag", "value"), [("shift", 0), ("pad", 2), ("distort", True)]
)
def test_other_data_sets_refuse_the_options_of_digits(monkeypatch, flag, value):
    monkeypatch.setitem(registry.DATASETS, "norb", lambda *_: "pipeline")
    assert registry.load("norb", Split.TRAIN, Options()) == "pipeline"
    with pytest.raises(UserError, match=f"--{flag} does not apply"):
        registry.load("norb", Split.TRAIN, Options(**{flag: value}))
