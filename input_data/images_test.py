import math

import numpy as np
import pytest
import tensorflow as tf

from common.errors import UserError
from input_data import augmentation, keys
from input_data.images import LabeledImages, labeled_images, make_pipeline
from input_data.photographs import StandardizedCrops
from input_data.pipeline import shuffled_indices
from input_data.registry import Split
from testing import splits
from testing.splits import batches, resolved, single_pixels


def images_of(batch):
    return batch[0][keys.IMAGES]


@pytest.mark.parametrize(
    ("num_examples", "batch_size"), [(50, 8), (50, 50), (5, 16), (1, 4), (7, 1)]
)
def test_every_epoch_takes_every_example_once(num_examples, batch_size):
    steps = tf.range(-(-3 * num_examples // batch_size), dtype=tf.int64)
    sizes = batch_size, num_examples
    taken = np.concatenate([shuffled_indices(n, *sizes, 2) for n in steps])
    epochs = taken[: 3 * num_examples].reshape(3, num_examples)
    for epoch in epochs:
        np.testing.assert_array_equal(np.sort(epoch), np.arange(num_examples))
    if num_examples >= 50:
        assert (epochs[0] != epochs[1]).any()
        # In a random order, neighbors are a third of all examples apart.
        distance = np.abs(np.diff(epochs)).mean()
        assert distance == pytest.approx(num_examples / 3, rel=0.2)


def test_half_of_the_training_images_are_mirrored():
    data = single_pixels()
    data.images[:, 0, 0] = 255
    pipeline = make_pipeline(data, resolved(flip=True, shift=0))
    ((x, _),) = batches(pipeline, 1000, 0, 1)
    corners = x[keys.IMAGES][:, 0, [0, -1], 0]
    np.testing.assert_array_equal(corners.sum(axis=1), 1)
    assert 400 < corners[:, 1].sum() < 600


@pytest.mark.parametrize(("shift", "pad"), [(None, None), (1, 3)])
def test_training_shifts_are_uniform_over_all_offsets(shift, pad):
    config = resolved(shift=shift, pad=pad)
    pipeline = make_pipeline(single_pixels(), config)
    shift, pad = 2 if shift is None else shift, pad or 0
    size = 9 + 2 * pad
    ((x, _),) = batches(pipeline, 10_000, 0, 1)
    images, labels = x[keys.IMAGES], x[keys.RECONS_LABEL]
    assert images.shape == (10_000, size, size, 1)
    sums, expected = images.sum(axis=(1, 2, 3)), 25 * (labels + 1) / 255
    np.testing.assert_allclose(sums, expected, atol=1e-6)
    counts = (images[..., 0] > 0).sum(axis=0)
    middle = slice(size // 2 - shift, size // 2 + shift + 1)
    expected = 10_000 / (2 * shift + 1) ** 2
    inner = counts[middle, middle]
    assert inner.sum() == 10_000
    assert np.abs(inner - expected).max() < 5 * math.sqrt(expected)
    ((x, _),) = pipeline.evaluation_batches(300)
    assert (x[keys.IMAGES][:, size // 2, size // 2] > 0).sum() == 300


@pytest.mark.parametrize("changes", [{"augment": True}, {"crop_area": 0.5}])
def test_training_images_alone_change(changes):
    both = [
        splits.load("digits", Split.TRAIN, shift=0, **settings)
        for settings in (changes, {})
    ]
    (changed,), (original,) = (batches(p, 8, 0, 1) for p in both)
    pixels = np.round(images_of(original) * 255).astype("uint8")
    step = tf.constant(0, tf.int64)
    config = resolved(**changes)
    expected = augmentation.random_changes(pixels, config, 0, step)
    np.testing.assert_allclose(images_of(changed) * 255, expected, atol=1e-3)
    assert (images_of(changed) != images_of(original)).any()
    evaluated = (images_of(next(p.evaluation_batches(4))) for p in both)
    np.testing.assert_array_equal(*evaluated)


def test_crops_are_standardized_and_move_for_evaluation():
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (7, 9, 8, 3), np.uint8)
    images[2] = 100 + (np.arange(216) == 105).reshape(9, 8, 3)  # almost equal
    pipeline = StandardizedCrops(
        LabeledImages(images, np.arange(7), 7),
        (5, 4),
        lambda images, step, seed: tf.cast(images[:, 1:6, :4], tf.float32),
        eval_size=6,
    )
    assert pipeline.spec.shape == keys.ImageShape(5, 4, 3, 7)
    assert pipeline.spec.num_examples == 6
    (trained,) = batches(pipeline, 7, 0, 1)
    order = trained[0][keys.RECONS_LABEL]
    for found, crops in (
        (trained, images[order][:, 1:6, :4]),
        (*pipeline.evaluation_batches(6), images[:6, 2:7, 2:6]),
        (*pipeline.moved((1, -2)).evaluation_batches(6), images[:6, 3:8, :4]),
    ):
        mean = crops.mean(axis=(1, 2, 3), keepdims=True)
        deviation = crops.std(axis=(1, 2, 3), keepdims=True)
        expected = (crops - mean) / np.maximum(deviation, 60**-0.5)
        np.testing.assert_allclose(images_of(found), expected, atol=1e-4)
        np.testing.assert_array_equal(images_of(found), found[1][keys.RECONS])
    (pixels,) = map(images_of, pipeline.in_pixels().evaluation_batches(6))
    np.testing.assert_allclose(pixels, images[:6, 2:7, 2:6] / 255, atol=1e-6)
    (seen,) = map(images_of, pipeline.evaluation_batches(6))
    np.testing.assert_allclose(pipeline.preprocess(pixels), seen, atol=1e-4)


def test_numbers_and_names_of_own_data_are_plain():
    labels, names = np.arange(3), np.array(["a", "b", "caf\u00e9"])
    images = np.zeros((3, 8, 8), "uint8")
    data = labeled_images("own", images, labels, labels.max() + 1, names)
    assert type(data.num_classes) is int
    assert list(map(type, data.class_names)) == [str] * 3


@pytest.mark.parametrize(
    ("message", "changed", "values"),
    [
        ("num_classes", "num_classes", [2.5, "3", None]),
        ("labels", "num_classes", [2]),
        ("3 different", "class_names", ["ab", "aba", ("a", "b", "")]),
        ("3 different", "class_names", [("a", "caf\u00e9", "cafe\u0301")]),
        (r"c\\x1b\[2J", "class_names", [("a", "b", "c\x1b[2J")]),
        ("class names", "class_names", [(1, 2, 3), (b"a", b"b", b"c"), 3]),
        ("integers", "labels", [[0.9, 1, 2], [np.nan, 1, 2]]),
        ("integers", "labels", [[[0.5, 0, 0]] * 3]),
        ("own", "labels", [["0", "1", "2"], [None, 1, 2]]),
    ],
)
def test_unsuitable_own_data_are_refused(changed, values, message):
    arguments = {"images": np.zeros((3, 8, 8), "uint8"), "labels": [0, 1, 2]}
    for value in values:
        wrong = arguments | {"num_classes": 3, changed: value}
        with pytest.raises(UserError, match=message):
            labeled_images("own", **wrong)
