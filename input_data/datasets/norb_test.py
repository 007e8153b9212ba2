import numpy as np
import pytest
import tensorflow as tf

from config import Config
from input_data import features as keys
from input_data.datasets import norb
from input_data.registry import Split
from testing import tiny_files


def test_shrink_is_the_legacy_bilinear_resize():
    images = tiny_files.random_images(2, 2, 96, 96)
    expected = np.empty((2, 48, 48, 2), np.uint8)
    for row in range(48):
        for column in range(48):
            # Legacy: the sample is at position * scale, with no half pixel.
            y, x = row * 96 / 48, column * 96 / 48
            assert (y, x) == (int(y), int(x))
            expected[:, row, column] = images[:, :, int(y), int(x)]
    np.testing.assert_array_equal(norb.shrink(images), expected)


def test_distort_crops_after_contrast_about_the_mean_of_the_whole_image():
    images = tiny_files.random_images(6, 48, 48, 2)
    images[:, :, 24:] //= 4  # so that the mean of a crop is another
    crops = norb.distort(tf.constant(images), tf.constant(5, tf.int64), 1)
    for image, crop in zip(images.astype(np.float64), crops, strict=True):
        windows = np.lib.stride_tricks.sliding_window_view(
            image, (32, 32, 2)
        ).reshape(-1, 32, 32, 2)
        mean = image.mean(axis=(0, 1))
        # crop = (window - mean) * contrast + mean + brightness
        for window in windows:
            deviation = window - mean
            changed = crop.numpy() - mean
            contrast = (deviation * (changed - changed.mean())).sum() / (
                deviation * (deviation - deviation.mean())
            ).sum()
            rest = changed - contrast * deviation
            if np.ptp(rest) < 0.01:
                assert 0.2 <= contrast <= 1.8
                assert abs(rest).max() <= 63.01
                break
        else:
            pytest.fail("not a distorted crop")


def test_evaluation_standardizes_the_middle(tmp_path):
    tiny_files.write_norb(tmp_path)
    raw, _ = norb.read_records(tmp_path / "testduo.tfrecords")
    pipeline = norb.load(Split.TEST, Config(data_dir=tmp_path))
    ((x, _),) = pipeline.evaluation_batches(tiny_files.NUM_TEST)
    for found, image in zip(x[keys.IMAGES], raw, strict=True):
        crop = image[:, ::2, ::2][:, 8:40, 8:40].astype(np.float64)
        expected = (crop - crop.mean()) / crop.std()
        np.testing.assert_allclose(
            found, expected.transpose(1, 2, 0), atol=1e-5
        )
