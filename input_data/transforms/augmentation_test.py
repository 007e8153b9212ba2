import numpy as np
import pytest
import tensorflow as tf

from input_data import features as keys
from input_data import registry
from input_data.options import Options
from input_data.splits import Split
from input_data.transforms import augmentation
from old.errors import UserError

RNG = np.random.default_rng(31)


def bar(count=400, size=28):
    """A bright bar of 12x2 pixels in the middle of black images."""
    images = np.zeros((count, size, size, 1), np.uint8)
    images[:, size // 2 - 6 : size // 2 + 6, size // 2 - 1 : size // 2 + 1] = (
        255
    )
    return images


def step(number):
    return tf.constant(number, tf.int64)


def test_it_is_a_function_of_seed_and_step_alone():
    images = RNG.integers(0, 256, (6, 20, 24, 3)).astype("uint8")
    first = augmentation.augment(images, 3, step(7))
    assert first.dtype == tf.uint8
    assert first.shape == images.shape
    inside = tf.function(lambda number: augmentation.augment(images, 3, number))
    np.testing.assert_array_equal(first, inside(step(7)))
    for seed, number in ((4, 7), (3, 8)):
        other = augmentation.augment(images, seed, step(number))
        assert (first != other).numpy().any()


def test_half_of_the_images_turn_by_up_to_30_degrees():
    images = tf.cast(bar(), tf.float32)
    turned = augmentation._turn_half(images, [1, 2]).numpy()
    same = (turned == images.numpy()).all(axis=(1, 2, 3))
    assert 0.4 < same.mean() < 0.6
    rows = np.arange(28) - 13.5
    bright = turned[..., 0] / turned.sum(axis=(1, 2, 3))[:, None, None]
    # The slope of the bar, by the second moments of what is bright.
    along = np.einsum("bhw,h,h->b", bright, rows, rows)
    across = np.einsum("bhw,w,w->b", bright, rows, rows)
    mixed = np.einsum("bhw,h,w->b", bright, rows, rows)
    angles = np.degrees(0.5 * np.arctan2(2 * mixed, along - across))
    assert 25 < np.abs(angles).max() < 31
    # Of a normal deviation of 9.9 degrees, cut at 30.
    assert 7 < angles[~same].std() < 12


def test_images_move_within_their_margins():
    images = bar(3000, size=16)
    images[:, :, :7] = 0  # the bar is one pixel wide, in column 8
    moved = augmentation._move_within_margins(
        tf.cast(images, tf.float32), [5, 6]
    ).numpy()[..., 0]
    rows = moved.any(axis=2).argmax(axis=1)
    columns = moved.any(axis=1).argmax(axis=1)
    assert (moved.sum(axis=(1, 2)) == images.sum(axis=(1, 2, 3))).all()
    assert set(rows) == set(range(5))  # margins of 2 above and below
    assert columns.min() <= 1
    assert columns.max() >= 14
    assert abs(columns.mean() - images[0, 8, :, 0].argmax()) < 0.2
    black = tf.zeros((2, 9, 9, 1))
    np.testing.assert_array_equal(
        augmentation._move_within_margins(black, [1, 1]), black
    )


@pytest.mark.parametrize(("kept", "left"), [(28, 0), (27, 1), (21, 3)])
def test_a_squeeze_is_lanczos_resizing(kept, left):
    images = RNG.uniform(0, 255, (2, 5, 28, 2)).astype("float32")
    squeezed = augmentation.squeeze(
        tf.constant(images), tf.fill((2,), kept), tf.fill((2,), left)
    ).numpy()
    expected = tf.image.resize(
        images, (5, kept), tf.image.ResizeMethod.LANCZOS3, antialias=True
    ).numpy()
    np.testing.assert_allclose(
        squeezed[:, :, left : left + kept], expected, atol=0.05
    )
    np.testing.assert_array_equal(squeezed[:, :, :left], 0)
    np.testing.assert_array_equal(squeezed[:, :, left + kept :], 0)


def test_widths_shrink_by_up_to_a_quarter():
    images = tf.fill((2000, 1, 28, 1), 255.0)
    squeezed = augmentation._squeeze_at_random(images, [7, 8]).numpy()
    widths = (squeezed[:, 0, :, 0] > 100).sum(axis=1)
    assert set(widths) == set(range(21, 28))
    assert (widths == 27).mean() > (widths == 21).mean()


def test_a_square_of_4x4_is_erased():
    images = tf.fill((3000, 28, 20, 1), 9.0)
    erased = augmentation._erase_square(images, [9, 1]).numpy()[..., 0] == 0
    assert (erased.sum(axis=(1, 2)) == 16).all()
    rows = erased.any(axis=2).argmax(axis=1)
    columns = erased.any(axis=1).argmax(axis=1)
    assert set(rows) == set(range(4, 23))
    assert set(columns) == set(range(4, 15))


def batches(options, start, stop):
    pipeline = registry.load("digits", Split.TRAIN, options)
    return [
        x[keys.IMAGES]
        for x, _ in pipeline.training_batches(
            8, 0, start, stop
        ).as_numpy_iterator()
    ]


def test_the_flag_augments_training_alone():
    options = Options(augment=True, num_targets=1)
    whole, resumed = batches(options, 0, 3), batches(options, 2, 3)
    np.testing.assert_array_equal(whole[2], resumed[0])
    plain = batches(Options(shift=0, num_targets=1), 0, 1)[0]
    assert plain.shape == whole[0].shape
    expected = augmentation.augment(
        np.round(plain * 255).astype("uint8"), 0, step(0)
    )
    np.testing.assert_allclose(whole[0] * 255, expected, atol=1e-3)
    evaluated = [
        x[keys.IMAGES]
        for some in (options, Options(num_targets=1))
        for x, _ in registry.load(
            "digits", Split.TEST, some
        ).evaluation_batches(4, stop=4)
    ]
    np.testing.assert_array_equal(*evaluated)


def test_pairs_are_not_augmented():
    with pytest.raises(UserError, match="--augment is for one target"):
        registry.load(
            "digits", Split.TRAIN, Options(num_targets=2, augment=True)
        )
