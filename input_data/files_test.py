"""Files that are missing or damaged, and packed ones, of every data set."""

import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

from common.errors import UserError
from input_data import keys
from input_data.augmentation import distort_colors
from input_data.datasets import cifar10, norb
from input_data.registry import Split
from testing import splits, tiny_files

# For each data set one of its files.
FILES = {
    "affnist": "training_and_validation.mat",
    "arrays": "x_train.npy",
    "cifar10": "data_batch_3.bin",
    "images": "train/class0/0.png",
    "mnist": "train-images-idx3-ubyte.gz",
    "norb": "trainduo.tfrecords",
    "svhn": "train_32x32.mat",
}


def load(name, folder, split=Split.TRAIN, **settings):
    pipeline = splits.load(name, split, folder, **settings)
    return list(pipeline.evaluation_batches(50_000))


def check_error(name, folder, expected):
    with pytest.raises(UserError, match=re.escape(expected)):
        load(name, folder)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["cut", "clear", "text", "vanish"])
def test_damaged_and_missing_files_are_named(name, damage, tmp_path):
    check_error(name, tmp_path / "none", "none")
    check_error(name, tmp_path, str(tmp_path))
    tiny_files.WRITERS[name](tmp_path)
    path = tmp_path / FILES[name]
    if name == "images" and damage == "vanish":  # all images
        path = tmp_path
        shutil.rmtree(path / "train")
        (path / "train").mkdir()
    else:
        tiny_files.DAMAGE[damage](path)
    check_error(name, tmp_path, path.name.removesuffix(".gz"))


@pytest.mark.parametrize("name", ["affnist", "arrays", "images"])
def test_a_folder_is_required(name):
    with pytest.raises(UserError, match="--data_dir"):
        splits.load(name, Split.TRAIN)


def test_mnist_is_in_order_and_its_last_10000_images_validate(tmp_path):
    written = tiny_files.write_mnist(tmp_path, 50_007, 13, size=2)
    for split, name, part in (
        (Split.TEST, "t10k", slice(5)),
        (Split.VALID_TRAIN, "train", slice(40_007)),
        (Split.VALID_TEST, "train", slice(40_007, None)),
    ):
        size = 5 if split is Split.TEST else 50_000
        ((x, _),) = load("mnist", tmp_path, split, eval_size=size)
        images, labels = (values[part] for values in written[name])
        found = x[keys.IMAGES][..., 0]
        np.testing.assert_allclose(found, images / 255, atol=1e-7)
        np.testing.assert_array_equal(x[keys.RECONS_LABEL], labels)


def test_label_ten_of_svhn_is_the_digit_zero(tmp_path):
    images = tiny_files.random_images(10, 32, 32, 3)
    content = tiny_files.svhn_bytes(images, np.arange(1, 11, dtype=np.uint8))
    (tmp_path / "test_32x32.mat").write_bytes(content)
    ((x, _),) = load("svhn", tmp_path, Split.TEST)
    np.testing.assert_allclose(x[keys.IMAGES], images / 255, atol=1e-6)
    assert x[keys.RECONS_LABEL].tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]


def test_a_folder_of_batches_of_affnist_is_read(tmp_path):
    images = tiny_files.random_images(6, 40, 40)
    labels = np.array([7, 0, 9, 1, 2, 3], np.uint8)
    (tmp_path / "test_batches").mkdir()
    for number in range(2):
        part = slice(3 * number, 3 * number + 3)
        content = tiny_files.affnist_bytes(images[part], labels[part])
        (tmp_path / "test_batches" / f"{number}.mat").write_bytes(content)
    ((x, _),) = load("affnist", tmp_path, Split.TEST)
    np.testing.assert_allclose(x[keys.IMAGES][..., 0], images / 255, atol=1e-6)
    np.testing.assert_array_equal(x[keys.RECONS_LABEL], labels)


def write_training(folder, images, labels):
    for number in range(5):
        part = slice(number, None, 5)
        content = tiny_files.cifar10_bytes(images[part], labels[part])
        (folder / f"data_batch_{number + 1}.bin").write_bytes(content)


def test_images_are_planes_of_red_green_and_blue(tmp_path):
    images = tiny_files.random_images(10, 32, 32, 3)
    # The folder may hold the folder of the published archive.
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    write_training(folder, images, range(10))
    order = [0, 5, 1, 6, 2, 7, 3, 8, 4, 9]  # file by file
    for data_dir in (tmp_path, folder):
        data = cifar10.read_files(data_dir, training=True)
        np.testing.assert_array_equal(data.images, images[order])
        assert data.labels.tolist() == order


def test_training_images_are_standardized_crops_some_flipped(tmp_path):
    # Brightness vanishes when an image is standardized, and so does contrast
    # if all channels have the same mean.
    gray = tiny_files.random_images(5, 32, 32, 1).repeat(3, axis=3)
    write_training(tmp_path, gray, range(5))
    pipeline = splits.load("cifar10", Split.TRAIN, tmp_path)
    ((x, _),) = pipeline.training_batches(12, 0, 0, 1).as_numpy_iterator()
    numbers = []
    view = np.lib.stride_tricks.sliding_window_view
    for image, label in zip(x[keys.IMAGES], x[keys.RECONS_LABEL], strict=True):
        crops = view(gray[label, ..., 0], (24, 24)).reshape(-1, 24, 24)
        crops = np.concatenate([crops, crops[:, :, ::-1]])
        expected = [(crop - crop.mean()) / crop.std() for crop in crops]
        distances = abs(expected - image[..., 0]).max(axis=(1, 2))
        numbers.append(distances.argmin())
        assert distances.min() < 1e-4
    assert 0 < sum(number >= 81 for number in numbers) < 12
    assert len(set(numbers)) > 6


def test_every_second_pixel_of_norb_is_read(tmp_path):
    images = tiny_files.random_images(3, 2, 96, 96)
    records = map(tiny_files.norb_example, images, [4, 0, 2])
    path = tiny_files.write_records(tmp_path / "testduo.tfrecords", records)
    stored, labels, meta = norb.read_records(path)
    shrunk = images[:, :, ::2, ::2].transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(stored, shrunk)
    assert labels.tolist() == [4, 0, 2]
    assert meta.tolist() == [[1, 2, 34, 5]] * 3


def test_distort_crops_after_contrast_about_the_mean_of_the_whole_image():
    images = tiny_files.random_images(6, 48, 48, 2)
    images[:, :, 24:] //= 4  # so that crops have other means
    step = tf.constant(5, tf.int64)
    whole = distort_colors(tf.cast(images, tf.float32), step, 1)
    for image, crop in zip(whole, norb.distort(images, step, 1), strict=True):
        windows = np.lib.stride_tricks.sliding_window_view(image, (32, 32, 2))
        differences = abs(windows[:, :, 0] - crop.numpy()).max(axis=(2, 3, 4))
        assert differences.min() < 1e-3
