import math
from unittest.mock import Mock

import numpy as np
import pytest
import tensorflow as tf

from config import Config
from input_data import augmentation
from input_data.augmentation import DISTORT_ANGLE, augment, distort
from testing.tiny_files import random_images

COUNT = 4000


def crop(images, seed, step):
    config = Config(crop_area=0.2)
    return augmentation.random_changes(images, config, seed, step)


@pytest.mark.parametrize("change", [augment, crop, distort])
def test_depends_on_seed_and_step_alone(change):
    images = tf.constant(random_images(6, 20, 24, 3))

    def changed(seed, step):
        return change(images, seed, tf.constant(step, tf.int64)).numpy()

    first = changed(3, 7)
    assert first.dtype == np.uint8
    np.testing.assert_array_equal(first, changed(3, 7))
    in_graph = tf.function(lambda step: change(images, 3, step))
    np.testing.assert_array_equal(first, in_graph(tf.constant(7, tf.int64)))
    assert (first != changed(4, 7)).any()
    assert (first != changed(3, 8)).any()


def assert_independent(*draws):
    """Draws [N] of each image; 5 standard deviations of their correlation."""
    correlations = np.corrcoef(draws)[~np.eye(len(draws), dtype=bool)]
    assert abs(correlations).max() < 5 / math.sqrt(len(draws[0]))


def test_every_change_has_a_stream_of_its_own(monkeypatch):
    calls, names = [], "step_seed rotate_half move_within_margins "
    for name in (names + "squeeze_at_random erase_square").split():
        calls.append(Mock(wraps=getattr(augmentation, name)))
        monkeypatch.setattr(augmentation, name, calls[-1])
    config = Config(crop_area=0.2, flip=True, augment=True, distort=True)
    step = tf.constant(7, tf.int64)
    images = random_images(6, 20, 24, 3)
    augmentation.random_changes(images, config, 3, step)
    augmentation.distort_colors(images.astype("float32"), step, 3)
    streams = [call.args[1] for call in calls[0].call_args_list]
    assert len(set(streams)) == len(streams) == 7
    seeds = {tuple(each.call_args.args[1].numpy()) for each in calls[1:]}
    assert len(seeds) == 4


def test_half_of_the_images_rotate_by_up_to_30_degrees():
    images = np.zeros((400, 28, 28, 1), np.float32)
    images[:, 8:20, 13:15] = 255  # a bar in the middle
    rotated = augmentation.rotate_half(images, [1, 2]).numpy()
    same = (rotated == images).all(axis=(1, 2, 3))
    assert 0.4 < same.mean() < 0.6
    rows = np.arange(28) - 13.5
    bright = rotated[..., 0] / rotated.sum(axis=(1, 2, 3))[:, None, None]
    # The slope of the bar, by its second moments.
    along = np.einsum("bhw,h,h->b", bright, rows, rows)
    across = np.einsum("bhw,w,w->b", bright, rows, rows)
    mixed = np.einsum("bhw,h,w->b", bright, rows, rows)
    angles = np.degrees(0.5 * np.arctan2(2 * mixed, along - across))
    assert 25 < angles.max() < 31
    assert -31 < angles.min() < -25
    # Of a normal deviation of 9.9 degrees, clipped at 30.
    assert 7 < angles[~same].std() < 12


def test_images_move_within_their_margins():
    shape = np.float32([[1, 2, 3], [0, 0, 4]])
    images = np.zeros((2000, 16, 16, 1), np.float32)
    images[:, 1:3, 9:12, 0] = shape  # margins of 1, 13, 9 and 4 pixels
    moved = augmentation.move_within_margins(images, [5, 6]).numpy()[..., 0]
    _, rows, columns = np.nonzero(moved == 1)
    for image, top, left in zip(moved, rows, columns, strict=True):
        image[top : top + 2, left : left + 3] -= shape
    assert not moved.any()  # the shapes were whole
    assert (min(rows), min(columns), max(columns)) == (0, 0, 13)
    # Of a normal deviation of a third of the margin.
    assert 11 <= max(rows) <= 14
    assert_independent(rows, columns)
    black = tf.zeros((2, 9, 9, 1))
    assert not augmentation.move_within_margins(black, [1, 1]).numpy().any()


def test_squeezed_images_are_in_the_middle():
    white = tf.ones((2000, 1, 28, 1))
    squeezed = augmentation.squeeze_at_random(white, [3, 4]).numpy()[:, 0, :, 0]
    inside = np.abs(squeezed) > 0.5
    left = inside.argmax(axis=1)
    removed = 28 - inside.sum(axis=1)
    assert (left + inside.sum(axis=1) <= 28).all()
    assert set(removed) == set(range(1, 8))
    assert set(left - removed // 2) == {0, 1}
    assert_independent(removed, left - removed // 2)


@pytest.mark.parametrize(("width", "left"), [(28, 0), (27, 1), (21, 3)])
def test_squeeze_is_lanczos_resizing(width, left):
    images = random_images(2, 5, 28, 2).astype("float32")
    places = tf.fill((2,), width), tf.fill((2,), left)
    squeezed = augmentation.squeeze(tf.constant(images), *places)
    kernel = tf.image.ResizeMethod.LANCZOS3
    resized = tf.image.resize(images, (5, width), kernel, antialias=True)
    right = 28 - width - left
    expected = np.pad(resized, [(0, 0), (0, 0), (left, right), (0, 0)])
    np.testing.assert_allclose(squeezed, expected, atol=0.05)


def test_a_square_of_4x4_is_erased():
    images = tf.fill((3000, 28, 20, 1), 9.0)
    erased = augmentation.erase_square(images, [9, 1]).numpy()[..., 0] == 0
    assert (erased.sum(axis=(1, 2)) == 16).all()
    rows = erased.any(axis=2).argmax(axis=1)
    columns = erased.any(axis=1).argmax(axis=1)
    assert set(rows) == set(range(4, 23))
    assert set(columns) == set(range(4, 15))
    assert_independent(rows, columns)


def test_angles_of_distort_differ_and_fill_the_range():
    # A bar through the middle, long enough that every crop keeps its ends.
    size = 104
    bars = np.zeros((400, size, size, 1), np.uint8)
    bars[:, size // 2 - 2 : size // 2 + 2] = 255
    rotated = distort(tf.constant(bars), 3, tf.constant(5, tf.int64)).numpy()
    assert rotated.shape == (400, size - 4, size - 4, 1)
    slopes = []
    for image in rotated[..., 0]:
        ys, xs = np.nonzero(image)
        middle = np.abs(xs - xs.mean()) < 40
        slopes.append(np.polyfit(xs[middle], ys[middle], 1)[0])
    angles = -np.arctan(slopes)
    assert len(np.unique(angles.round(4))) > 300
    assert np.abs(angles).max() < DISTORT_ANGLE + 0.01
    deviation = DISTORT_ANGLE / math.sqrt(3)  # of uniform angles
    assert abs(angles.mean()) < 4 * deviation / math.sqrt(400)
    assert np.std(angles) == pytest.approx(deviation, rel=0.1)


def test_random_crops_come_from_every_place_equally():
    image = np.arange(49, dtype=np.float32).reshape(1, 7, 7, 1)
    images = np.tile(image, (COUNT, 1, 1, 1))
    seed = tf.constant([3, 5], tf.int64)
    crops = augmentation.random_crop(images, (4, 4), seed).numpy()
    rows, columns = np.divmod(crops[:, 0, 0, 0].astype(int), 7)
    counts = np.zeros((4, 4), int)
    np.add.at(counts, (rows, columns), 1)
    assert counts.sum() == COUNT
    # Each of the 16 places: 250 expected, standard deviation 15.3.
    assert abs(counts - COUNT / 16).max() < 5 * 15.3
    for crop, row, column in zip(crops[:50], rows, columns, strict=False):
        expected = images[0, row : row + 4, column : column + 4]
        np.testing.assert_array_equal(crop, expected)


def test_resized_crops_lie_inside_and_have_the_areas_and_proportions():
    rows_and_columns = np.moveaxis(4 * np.indices((40, 50), "uint8"), 0, -1)
    images = np.tile(rows_and_columns, (COUNT, 1, 1, 1))
    crops = augmentation.random_resized_crop(images, 0.2, [3, 5]).numpy() / 4
    lines, scales, places = [crops[:, :, 9, 0], crops[:, 9, :, 1]], [], []
    for line, size in zip(lines, (40, 50), strict=True):
        inner = np.arange(1, size - 1)  # the border may repeat a pixel
        scale, start = np.polyfit(inner, line[:, 1:-1].T, 1)
        fitted = start[:, None] + scale[:, None] * inner
        np.testing.assert_allclose(line[:, 1:-1], fitted, atol=0.25)
        ends = start - scale / 2, start + scale * (size - 0.5)
        assert -0.55 < ends[0].min() < 0
        assert size - 1 < ends[1].max() < size - 0.45
        scales.append(scale)
        places.append(start - (1 - scale) * size / 2)
    area, factor = scales[0] * scales[1], scales[1] / scales[0]
    assert 0.19 < area.min() < 0.21
    assert 0.97 < area.max() < 1.01
    assert area.mean() == pytest.approx(0.6, abs=0.02)
    assert 0.74 < factor.min() < 0.76
    assert 1.31 < factor.max() < 1.35
    assert_independent(area, *places)
    whole = augmentation.random_resized_crop(images[:9], 1.0, [3, 5])
    np.testing.assert_array_equal(whole, images[:9])


def test_colors_change_by_one_offset_and_one_factor_for_each_image():
    images = random_images(1000, 4, 5, 3).astype("float32")
    step = tf.constant(2, tf.int64)
    changed = augmentation.distort_colors(images, step, 3).numpy()
    mean = images.mean(axis=(1, 2), keepdims=True)
    changed_mean = changed.mean(axis=(1, 2), keepdims=True)
    delta = (changed_mean - mean)[:, 0, 0]  # [B, channels]
    factor = (changed - changed_mean).std(axis=(1, 2)) / images.std(axis=(1, 2))
    for amounts, low, high in ((delta, -63, 63), (factor, 0.2, 1.8)):
        np.testing.assert_allclose(amounts, amounts[:, :1].repeat(3, 1), 1e-2)
        assert low <= amounts.min() < low + 0.03 * (high - low)
        assert high - 0.03 * (high - low) < amounts.max() <= high + 1e-3
    assert_independent(delta[:, 0], factor[:, 0])
    delta, factor = delta[:, None, None], factor[:, None, None]
    expected = (images + delta - changed_mean) * factor + changed_mean
    np.testing.assert_allclose(changed, expected, atol=0.05)
