import numpy as np
import pytest
import tensorflow as tf

from config import Config
from input_data import features as keys
from input_data.datasets import norb
from input_data.registry import Split
from testing import tiny_files


def test_evaluation_standardizes_the_center_of_every_second_pixel(tmp_path):
    images = tiny_files.random_images(3, 2, 96, 96)
    records = map(tiny_files.norb_example, images, [4, 0, 2])
    path = tiny_files.write_records(tmp_path / "testduo.tfrecords", records)
    stored, labels = norb.read_records(path)
    shrunk = images[:, :, ::2, ::2].transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(stored, shrunk)
    assert labels.tolist() == [4, 0, 2]
    pipeline = norb.load(Split.TEST, Config(data_dir=tmp_path))
    ((x, _),) = pipeline.evaluation_batches(3)
    assert x[keys.RECONS_LABEL].tolist() == [4, 0, 2]
    for image, original in zip(x[keys.IMAGES], images, strict=True):
        crop = original[:, 16:80:2, 16:80:2].astype(np.float64)
        expected = (crop - crop.mean()) / crop.std()
        np.testing.assert_allclose(
            image, expected.transpose(1, 2, 0), atol=1e-5
        )


def test_distort_crops_after_contrast_about_the_mean_of_the_whole_image():
    images = tiny_files.random_images(6, 48, 48, 2)
    images[:, :, 24:] //= 4  # so that crops have other means
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
            brightness = changed - contrast * deviation
            if np.ptp(brightness) < 0.01:
                assert 0.2 <= contrast <= 1.8
                assert abs(brightness).max() <= 63.01
                break
        else:
            pytest.fail("not a distorted crop")
