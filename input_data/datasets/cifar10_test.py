import numpy as np
import tensorflow as tf

from config import Config
from input_data import features as keys
from input_data.datasets import cifar10
from input_data.registry import Split
from testing import tiny_files


def standardise(image):
    """(x - mean) / max(deviation, 1 / sqrt(n)), in float64."""
    image = image.astype(np.float64)
    deviation = max(image.std(), 1 / np.sqrt(image.size))
    return (image - image.mean()) / deviation


def check_even(counts, total):
    """Asserts that `total` random values are evenly distributed."""
    # Values at the bounds may be rounded to the outside.
    assert total - 3 <= counts.sum() <= total
    expected = total / len(counts)
    assert abs(counts - expected).max() < 5 * np.sqrt(expected)


def test_reads_planes_of_red_green_blue_in_file_order(tmp_path):
    images = tiny_files.random_images(10, 32, 32, 3)
    labels = np.arange(10, dtype=np.uint8)
    for number in range(5):
        content = b"".join(
            bytes([label]) + b"".join(image[..., c].tobytes() for c in range(3))
            for label, image in zip(
                labels[2 * number :][:2],
                images[2 * number :][:2],
                strict=True,
            )
        )
        (tmp_path / f"data_batch_{number + 1}.bin").write_bytes(content)
    data = cifar10.read_cifar10(tmp_path, training=True)
    np.testing.assert_array_equal(data.images, images)
    np.testing.assert_array_equal(data.labels, labels)


def test_data_dir_may_hold_the_folder_of_batches(tmp_path):
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    tiny_files.write_cifar10(folder)
    outer = cifar10.read_cifar10(tmp_path, training=False)
    inner = cifar10.read_cifar10(folder, training=False)
    np.testing.assert_array_equal(outer.images, inner.images)


def test_evaluation_standardises_the_middle(tmp_path):
    tiny_files.write_cifar10(tmp_path)
    data = cifar10.read_cifar10(tmp_path, training=False)
    pipeline = cifar10.load(Split.TEST, Config(data_dir=tmp_path))
    ((x, y),) = pipeline.evaluation_batches(tiny_files.NUM_TEST)
    for found, image in zip(x[keys.IMAGES], data.images, strict=True):
        expected = standardise(image[4:28, 4:28])
        np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_array_equal(x[keys.RECONS_LABEL], data.labels)
    np.testing.assert_array_equal(y[keys.RECONS], x[keys.IMAGES])


def test_a_black_image_standardises_to_zeros(tmp_path):
    content = tiny_files.cifar10_bytes(np.zeros((1, 32, 32, 3), np.uint8), [3])
    (tmp_path / "test_batch.bin").write_bytes(content)
    pipeline = cifar10.load(Split.TEST, Config(data_dir=tmp_path))
    ((x, _),) = pipeline.evaluation_batches(1)
    np.testing.assert_array_equal(x[keys.IMAGES], np.zeros((1, 24, 24, 3)))


def test_validation_holds_out_the_last_fifth(tmp_path):
    tiny_files.write_cifar10(tmp_path)
    data = cifar10.read_cifar10(tmp_path, training=True)
    pipeline = cifar10.load(Split.VALID_TEST, Config(data_dir=tmp_path))
    ((x, _),) = pipeline.evaluation_batches(3)
    expected = standardise(data.images[-3][4:28, 4:28])
    np.testing.assert_allclose(x[keys.IMAGES][0], expected, atol=1e-5)


def test_distort_crops_flips_and_changes_colours_over_their_whole_ranges():
    count, slope = 1000, 7
    # Red tells the row, green the column, and blue the brightness.
    image = np.empty((32, 32, 3), np.uint8)
    image[..., 0] = slope * np.arange(32)[:, np.newaxis]
    image[..., 1] = slope * np.arange(32)
    image[..., 2] = 100
    images = tf.constant(np.repeat(image[np.newaxis], count, axis=0))
    crops = cifar10.distort(images, tf.constant(5, tf.int64), 1).numpy()
    assert crops.shape == (count, 24, 24, 3)

    brightness = crops[:, 0, 0, 2] - 100
    contrast = (crops[:, 1, 0, 0] - crops[:, 0, 0, 0]) / slope
    for values, bounds in ((brightness, (-63, 63)), (contrast, (0.2, 1.8))):
        counts, _ = np.histogram(values, 10, bounds)
        check_even(counts, count)
    is_flipped = crops[:, 0, 1, 1] < crops[:, 0, 0, 1]
    check_even(np.bincount(is_flipped, minlength=2), count)
    # Contrast is about the mean of the crop, which brightness alone moves.
    means = crops.mean(axis=(1, 2))
    corners = (means[:, :2] - means[:, 2:] + 100) / slope - 11.5
    np.testing.assert_allclose(corners, corners.round(), atol=0.01)
    for corner in corners.round().astype(int).T:
        check_even(np.bincount(corner, minlength=9), count)
