import numpy as np

from config import Config
from input_data import features as keys
from input_data.datasets import cifar10
from input_data.registry import Split
from testing import tiny_files


def standardize(image):
    """(x - mean) / max(deviation, 1 / sqrt(n)), in float64."""
    image = image.astype(np.float64)
    deviation = max(image.std(), 1 / np.sqrt(image.size))
    return (image - image.mean()) / deviation


def write_training(folder, images, labels):
    for number in range(5):
        part = slice(number, None, 5)
        content = tiny_files.cifar10_bytes(images[part], labels[part])
        (folder / f"data_batch_{number + 1}.bin").write_bytes(content)


def test_images_are_planes_of_red_green_and_blue(tmp_path):
    images = tiny_files.random_images(10, 32, 32, 3)
    write_training(tmp_path, images, range(10))
    order = [0, 5, 1, 6, 2, 7, 3, 8, 4, 9]  # file by file
    data = cifar10.read_files(tmp_path, training=True)
    np.testing.assert_array_equal(data.images, images[order])
    assert data.labels.tolist() == order
    pipeline = cifar10.load(Split.VALID_TEST, Config(data_dir=tmp_path))
    ((x, _),) = pipeline.evaluation_batches(10)
    assert x[keys.RECONS_LABEL].tolist() == order[-2:]


def test_evaluation_standardizes_the_center(tmp_path):
    images = tiny_files.random_images(3, 32, 32, 3)
    images[1] = 0
    # The folder may hold the folder of the published archive.
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    content = tiny_files.cifar10_bytes(images, [4, 0, 9])
    (folder / "test_batch.bin").write_bytes(content)
    for data_dir in (tmp_path, folder):
        pipeline = cifar10.load(Split.TEST, Config(data_dir=data_dir))
        ((x, _),) = pipeline.evaluation_batches(3)
        expected = [standardize(image[4:28, 4:28]) for image in images]
        np.testing.assert_allclose(x[keys.IMAGES], expected, atol=1e-5)
        assert x[keys.RECONS_LABEL].tolist() == [4, 0, 9]


def test_training_images_are_standardized_crops_some_flipped(tmp_path):
    # Brightness vanishes when an image is standardized, and so does contrast
    # if all channels have the same mean.
    gray = tiny_files.random_images(5, 32, 32, 1).repeat(3, axis=3)
    write_training(tmp_path, gray, range(5))
    pipeline = cifar10.load(Split.TRAIN, Config(data_dir=tmp_path))
    ((x, _),) = pipeline.training_batches(12, 0, 0, 1).as_numpy_iterator()
    numbers = []
    for image, label in zip(x[keys.IMAGES], x[keys.RECONS_LABEL], strict=True):
        crops = np.lib.stride_tricks.sliding_window_view(
            gray[label, ..., 0], (24, 24)
        ).reshape(-1, 24, 24)
        crops = np.concatenate([crops, crops[:, :, ::-1]])
        expected = np.stack([standardize(crop) for crop in crops])
        distances = abs(expected - image[..., 0]).max(axis=(1, 2))
        numbers.append(distances.argmin())
        assert distances.min() < 1e-4
    assert 0 < sum(number >= 81 for number in numbers) < 12
    assert len(set(numbers)) > 6
