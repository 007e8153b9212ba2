"""How images are shifted, padded, distorted and paired."""

import math

import numpy as np
import pytest

from input_data import features as keys
from input_data import registry
from input_data.images import (
    SINGLE_SHIFT,
    LabelledImages,
    make_pipeline,
)
from input_data.options import Options
from input_data.splits import Split
from old.errors import UserError
from testing import tiny_files


def digits(split=Split.TRAIN, **options):
    return registry.load("digits", split, Options(**options))


def batches(pipeline, batch_size, start, stop, seed=0):
    return list(
        pipeline.training_batches(
            batch_size, seed, start, stop
        ).as_numpy_iterator()
    )


def images_of(batch):
    return batch[0][keys.IMAGES]


def single_pixels(size=9, copies=30):
    """Images that are black but for the middle pixel, which tells the class."""
    labels = np.repeat(np.arange(10), copies)
    images = np.zeros((len(labels), size, size, 1), "uint8")
    images[:, size // 2, size // 2, 0] = 10 * (labels + 1)
    return LabelledImages(images, labels, 10)


@pytest.mark.parametrize("name", ["digits", "mnist"])
def test_single_digits_are_shifted_by_2_unless_asked(tmp_path, name):
    if name == "mnist":
        tiny_files.write_idx(tmp_path)

    def first(**options):
        if name == "mnist":
            options["data_dir"] = str(tmp_path)
        pipeline = registry.load(name, Split.TRAIN, Options(**options))
        (batch,) = batches(pipeline, 8, 0, 1)
        return images_of(batch)

    np.testing.assert_array_equal(first(), first(shift=2))
    assert (first() != first(shift=1)).any()


@pytest.mark.parametrize(("shift", "pad"), [(None, None), (1, 3)])
def test_training_shifts_are_uniform_over_all_offsets(shift, pad):
    pipeline = make_pipeline(
        single_pixels(), Options(shift=shift, pad=pad), SINGLE_SHIFT
    )
    shift, pad = 2 if shift is None else shift, pad or 0
    size = 9 + 2 * pad
    ((x, _),) = batches(pipeline, 10_000, 0, 1)
    images, labels = x[keys.IMAGES], x[keys.RECONS_LABEL]
    assert images.shape == (10_000, size, size, 1)
    np.testing.assert_allclose(
        images.sum(axis=(1, 2, 3)), 10 * (labels + 1) / 255, atol=1e-6
    )
    counts = (images[..., 0] > 0).sum(axis=0)
    middle = slice(size // 2 - shift, size // 2 + shift + 1)
    expected = 10_000 / (2 * shift + 1) ** 2
    inner = counts[middle, middle]
    assert inner.sum() == 10_000
    assert np.abs(inner - expected).max() < 5 * math.sqrt(expected)


def test_no_shift_leaves_images_as_they_are():
    data = single_pixels()
    pipeline = make_pipeline(data, Options(eval_size=10))
    for batch in (
        *batches(pipeline, 10, 0, 1),
        *pipeline.evaluation_batches(10),
    ):
        assert (images_of(batch)[:, 4, 4] > 0).all()


def test_expanded_mnist_is_40_by_40_and_tests_are_in_the_middle():
    padded = digits(Split.TEST, shift=6, pad=6, eval_size=3)
    plain = digits(Split.TEST, eval_size=3)
    assert padded.spec.shape == keys.ImageShape(40, 40, 1, 10)
    (found,), (original,) = (
        [images_of(batch) for batch in some.evaluation_batches(3)]
        for some in (padded, plain)
    )
    np.testing.assert_array_equal(
        found, np.pad(original, ((0, 0), (6, 6), (6, 6), (0, 0)))
    )


def test_distort_crops_in_training_and_in_testing():
    pipeline = digits(distort=True, eval_size=9)
    assert pipeline.spec.shape == keys.ImageShape(24, 24, 1, 10)
    whole = batches(pipeline, 5, 0, 4, seed=7)
    for x, y in [*whole, *pipeline.evaluation_batches(7)]:
        assert x[keys.IMAGES].shape[1:] == (24, 24, 1)
        np.testing.assert_array_equal(x[keys.IMAGES], y[keys.RECONS])
    (resumed,) = batches(pipeline, 5, 3, 4, seed=7)
    np.testing.assert_array_equal(images_of(whole[3]), images_of(resumed))


@pytest.mark.parametrize("training", [True, False])
def test_pairs_are_merged_shifted_and_uniform(training):
    pipeline = make_pipeline(
        single_pixels(), Options(num_targets=2, eval_size=9000)
    )
    assert pipeline.spec.shape == keys.ImageShape(17, 17, 1, 10)
    pairs = np.zeros((10, 10))
    places = np.zeros((2, 17, 17))
    same_offset = 0
    for x, y in (
        batches(pipeline, 4500, 0, 2)
        if training
        else pipeline.evaluation_batches(4500)
    ):
        first, second = y[keys.RECONS], y[keys.SPARE_RECONS]
        np.testing.assert_allclose(
            x[keys.IMAGES], np.minimum(first + second, 1), atol=1e-6
        )
        for target, image in enumerate((first, second)):
            label = x[keys.LABEL_BY_TARGET[target]]
            np.testing.assert_allclose(
                image.max(axis=(1, 2, 3)), 10 * (label + 1) / 255, atol=1e-6
            )
            assert ((image > 0).sum(axis=(1, 2, 3)) == 1).all()
            places[target] += (image[..., 0] > 0).sum(axis=0)
        same_offset += ((first > 0) & (second > 0)).sum()
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


def test_pairs_with_another_shift_and_pad():
    options = Options(num_targets=2, shift=1, pad=2, eval_size=10)
    pipeline = make_pipeline(single_pixels(), options)
    assert pipeline.spec.shape == keys.ImageShape(13, 13, 1, 10)
    ((_, y),) = batches(pipeline, 5000, 0, 1)
    for key in keys.RECONS_BY_TARGET:
        counts = (y[key][..., 0] > 0).sum(axis=0)
        assert counts[5:8, 5:8].sum() == 5000
        assert np.abs(counts[5:8, 5:8] - 5000 / 9).max() < 5 * math.sqrt(
            5000 / 9
        )


def test_the_seed_fixes_the_pairs_of_evaluation_and_nothing_else():
    for num_targets, differ in ((1, False), (2, True)):
        first, other = (
            next(
                digits(
                    Split.TEST, num_targets=num_targets, eval_size=20, seed=seed
                ).evaluation_batches(20)
            )
            for seed in (0, 1)
        )
        assert (images_of(first) != images_of(other)).any() == differ


def test_bright_overlaps_are_cut_at_white():
    images = np.full((2, 6, 6, 1), 200, "uint8")
    data = LabelledImages(images, np.array([0, 1]), 2)
    pipeline = make_pipeline(data, Options(num_targets=2, eval_size=50))
    ((x, y),) = pipeline.evaluation_batches(50)
    both = (y[keys.RECONS] > 0) & (y[keys.SPARE_RECONS] > 0)
    assert both.any()
    assert (x[keys.IMAGES][both] == 1.0).all()


def test_pairs_are_not_distorted():
    with pytest.raises(UserError, match="--distort is for one target"):
        digits(num_targets=2, distort=True)


@pytest.mark.parametrize(
    ("options", "largest"),
    [
        ({"shift": 15}, 14),
        ({"shift": 10**10, "pad": 6}, 20),
        ({"shift": 19, "num_targets": 2}, 18),
    ],
)
def test_images_are_not_shifted_out_of_sight(options, largest):
    message = f"--shift={options['shift']} .* it may be at most {largest}$"
    with pytest.raises(UserError, match=message):
        digits(**options)
    digits(**{**options, "shift": largest, "eval_size": 1})


def test_more_pairs_than_fit_in_memory():
    with pytest.raises(UserError, match=r"--eval_size=1000.* GB.*fewer"):
        digits(Split.TEST, num_targets=2, eval_size=10**22)


@pytest.mark.parametrize("num_targets", [1, 2])
def test_too_much_padding_is_refused(num_targets):
    message = r"2000028x2000028, by --pad=1000000, takes .* GB.*choose less"
    with pytest.raises(UserError, match=message):
        digits(num_targets=num_targets, pad=10**6)


def test_pairs_need_two_classes():
    data = LabelledImages(np.zeros((3, 9, 9, 1), "uint8"), np.ones(3, int), 10)
    with pytest.raises(UserError, match="at least two classes"):
        make_pipeline(data, Options(num_targets=2))
