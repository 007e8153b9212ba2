"""What every pipeline promises, checked on the embedded digits."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from common.errors import UserError
from input_data import features as keys
from input_data import registry
from input_data.labelled_images import (
    SINGLE_SHIFT,
    LabelledImages,
    make_pipeline,
)
from input_data.randomness import shuffled_indices
from input_data.shifting import shift_images
from input_data.splits import Split

BOTH = pytest.mark.parametrize("num_targets", [1, 2])


def digits(num_targets, split=Split.TRAIN, **options):
    options = registry.Options(num_targets=num_targets, **options)
    return registry.load("digits", split, options)


def as_numpy(dataset):
    return [
        tuple({k: v.numpy() for k, v in part.items()} for part in batch)
        for batch in dataset
    ]


def assert_same(first, second):
    for one, other in zip(first, second, strict=True):
        for a, b in zip(one, other, strict=True):
            assert a.keys() == b.keys()
            for key in a:
                np.testing.assert_array_equal(a[key], b[key])


@BOTH
def test_batches_hold_to_the_contract(num_targets):
    pipeline = digits(num_targets)
    shape = pipeline.spec.shape
    dataset = pipeline.training_batches(7, 0, 0, 3)
    assert dataset.cardinality() == 3
    names = keys.LABEL_BY_TARGET[:num_targets]
    recons = keys.RECONS_BY_TARGET[:num_targets]
    for x, y in itertools.chain(dataset, pipeline.evaluation_batches(7)):
        size = len(x[keys.IMAGES])
        assert set(x) == {keys.IMAGES, *names}
        assert set(y) == {keys.LOGITS, *recons}
        image_shape = (size, shape.height, shape.width, shape.depth)
        for image in (x[keys.IMAGES], *(y[name] for name in recons)):
            assert image.shape == image_shape
            assert image.dtype == tf.float32
            assert 0 <= np.min(image) < np.max(image) <= 1
        k_hot = np.zeros((size, shape.num_classes))
        for name in names:
            assert x[name].dtype == tf.int32
            k_hot[np.arange(size), x[name]] += 1
        np.testing.assert_array_equal(y[keys.LOGITS], k_hot)
        assert k_hot.max() == 1  # two targets are of different classes


@BOTH
def test_a_batch_is_a_function_of_seed_and_step(num_targets):
    whole = as_numpy(digits(num_targets).training_batches(16, 3, 0, 100))
    resumed = as_numpy(digits(num_targets).training_batches(16, 3, 93, 100))
    assert_same(whole[93:], resumed)
    other = as_numpy(digits(num_targets).training_batches(16, 4, 93, 100))
    for (x, _), (x_other, _) in zip(resumed, other, strict=True):
        assert (x[keys.IMAGES] != x_other[keys.IMAGES]).any()
    for (x, _), (x_next, _) in itertools.pairwise(resumed):
        assert (x[keys.IMAGES] != x_next[keys.IMAGES]).any()


@BOTH
def test_evaluation_is_fixed_and_counts_a_last_partial_batch(num_targets):
    def evaluate(batch_size, **options):
        pipeline = digits(num_targets, Split.TEST, eval_size=250, **options)
        assert pipeline.spec.num_examples == 250
        return as_numpy(pipeline.evaluation_batches(batch_size))

    batches = evaluate(100)
    assert [len(x[keys.IMAGES]) for x, _ in batches] == [100, 100, 50]
    assert_same(batches, evaluate(100))
    one_by_one = np.concatenate([x[keys.IMAGES] for x, _ in evaluate(1)])
    np.testing.assert_array_equal(
        one_by_one, np.concatenate([x[keys.IMAGES] for x, _ in batches])
    )
    other = evaluate(100, seed=1)
    changed = (other[0][0][keys.IMAGES] != batches[0][0][keys.IMAGES]).any()
    assert changed == (num_targets == 2)  # the seed fixes the pairs alone


@pytest.mark.parametrize(
    ("num_examples", "batch_size"), [(50, 8), (50, 50), (5, 16), (1, 4), (7, 1)]
)
def test_every_pass_takes_every_example_once(num_examples, batch_size):
    steps = -(-3 * num_examples // batch_size)
    taken = np.concatenate(
        [
            shuffled_indices(
                tf.constant(step, tf.int64), batch_size, num_examples, seed=2
            ).numpy()
            for step in range(steps)
        ]
    )
    passes = [
        taken[n * num_examples : (n + 1) * num_examples] for n in range(3)
    ]
    for one in passes:
        np.testing.assert_array_equal(np.sort(one), np.arange(num_examples))
    if num_examples >= 50:
        assert (passes[0] != passes[1]).any()
        assert (passes[0] != np.arange(num_examples)).any()


def test_shift_by_hand():
    image = np.zeros((1, 5, 6, 1), "uint8")
    image[0, 2, 3] = 9
    image[0, 0, 0] = 5
    moved = shift_images(
        tf.constant(np.repeat(image, 3, axis=0)),
        tf.constant([[0, 0], [1, -2], [-2, 2]]),
        2,
    ).numpy()[..., 0]
    np.testing.assert_array_equal(moved[0], image[0, ..., 0])
    # (0, 0) leaves the image to the left, then to the top.
    expected = np.zeros((2, 5, 6))
    expected[0, 3, 1] = 9
    expected[1, 0, 5] = 9
    np.testing.assert_array_equal(moved[1:], expected)


def single_pixels(size=9, copies=30):
    """Images that are black but for the middle pixel, which tells the class."""
    labels = np.repeat(np.arange(10), copies)
    images = np.zeros((len(labels), size, size, 1), "uint8")
    images[:, size // 2, size // 2, 0] = 10 * (labels + 1)
    return LabelledImages(images, labels, 10)


def test_training_shifts_are_uniform_over_25_offsets():
    pipeline = make_pipeline(
        single_pixels(), registry.Options(eval_size=10), SINGLE_SHIFT
    )
    counts = np.zeros((9, 9))
    for x, _ in pipeline.training_batches(500, 0, 0, 20):
        images, labels = x[keys.IMAGES].numpy(), x[keys.RECONS_LABEL].numpy()
        assert ((images > 0).sum(axis=(1, 2, 3)) == 1).all()
        np.testing.assert_allclose(
            images.max(axis=(1, 2, 3)), 10 * (labels + 1) / 255, atol=1e-6
        )
        counts += (images[..., 0] > 0).sum(axis=0)
    inner = counts[2:7, 2:7]
    assert inner.sum() == counts.sum() == 10_000
    # 400 expected each, deviation 20.
    assert np.abs(inner - 400).max() < 5 * 20


def test_evaluation_images_are_not_shifted():
    pipeline = make_pipeline(single_pixels(), registry.Options(eval_size=10))
    ((x, _),) = pipeline.evaluation_batches(10)
    assert (x[keys.IMAGES].numpy()[:, 4, 4] > 0).all()


@pytest.mark.parametrize("training", [True, False])
def test_pairs_are_merged_shifted_and_uniform(training):
    pipeline = make_pipeline(
        single_pixels(), registry.Options(num_targets=2, eval_size=9000)
    )
    assert pipeline.spec.shape == keys.ImageShape(17, 17, 1, 10)
    batches = (
        pipeline.training_batches(450, 0, 0, 20)
        if training
        else pipeline.evaluation_batches(450)
    )
    pairs = np.zeros((10, 10))
    places = np.zeros((2, 17, 17))
    same_offset = 0
    for x, y in as_numpy(batches):
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


def test_bright_overlaps_are_cut_at_white():
    images = np.full((2, 6, 6, 1), 200, "uint8")
    data = LabelledImages(images, np.array([0, 1]), 2)
    pipeline = make_pipeline(
        data, registry.Options(num_targets=2, eval_size=50)
    )
    ((x, y),) = pipeline.evaluation_batches(50)
    both = (y[keys.RECONS].numpy() > 0) & (y[keys.SPARE_RECONS].numpy() > 0)
    assert both.any()
    assert (x[keys.IMAGES].numpy()[both] == 1.0).all()


def test_registry_names_what_is_valid():
    with pytest.raises(UserError, match=r"'emnist'; valid names: .*digits"):
        registry.load("emnist", Split.TEST, registry.Options())
    with pytest.raises(UserError, match="--num_targets=3 must be 1 or 2"):
        digits(3)
