import pytest
import tensorflow_datasets as tfds

from common.errors import UserError
from config import Config
from input_data import features as keys
from input_data.datasets import cifar10, mnist, norb, svhn, tfds_images
from input_data.registry import Split, load
from testing import tiny_files


@pytest.fixture
def mocked(monkeypatch, tmp_path):
    """TFDS with 40 made-up examples in every set, and a network."""
    monkeypatch.setattr(tfds_images, "has_network", lambda: True)
    # The folder that a set would be downloaded to.
    monkeypatch.setattr(tfds.core.constants, "DATA_DIR", str(tmp_path))
    with tfds.testing.mock_data(num_examples=40):
        yield


@pytest.mark.parametrize(
    ("load_split", "shape", "num_classes"),
    [
        (mnist.load, (28, 28, 1), 10),
        (cifar10.load, (24, 24, 3), 10),
        (norb.load, (32, 32, 2), 5),
        (svhn.load, (32, 32, 3), 10),
    ],
)
@pytest.mark.usefixtures("mocked")
def test_sets_of_the_paper_without_data_dir(load_split, shape, num_classes):
    for split in (Split.TRAIN, Split.TEST):
        pipeline = load_split(split, Config())
        assert pipeline.spec.shape == keys.ImageShape(*shape, num_classes)
        assert pipeline.spec.num_examples == 40
    ((x, _),) = pipeline.evaluation_batches(40)
    assert x[keys.IMAGES].shape == (40, *shape)


def test_any_set_has_the_shape_and_classes_of_its_info(tmp_path):
    tiny_files.prepare_tfds(tmp_path)
    images = tiny_files.random_images(tiny_files.NUM_TEST, 20, 24, 3)
    pipeline = load(
        "tfds:tiny_photos", Split.TEST, Config(data_dir=str(tmp_path))
    )
    assert pipeline.spec.shape == keys.ImageShape(20, 24, 3, 4)
    ((x, _),) = pipeline.evaluation_batches(tiny_files.NUM_TEST)
    for image, label in zip(images, range(tiny_files.NUM_TEST), strict=True):
        # TFDS stores the examples in an order of its own.
        distances = abs(x[keys.IMAGES] * 255 - image).max((1, 2, 3))
        place = distances.argmin()
        assert distances[place] < 0.01
        assert x[keys.RECONS_LABEL][place] == label % 4


def test_images_of_many_sizes_need_image_size(tmp_path):
    tiny_files.prepare_tfds(tmp_path, tiny_files.TinyAnySize)
    options = {"data_dir": str(tmp_path)}
    with pytest.raises(UserError, match=r"tiny_any_size.*--image_size"):
        load("tfds:tiny_any_size", Split.TRAIN, Config(**options))
    options["image_size"] = 19
    # There is no split test: the last fifth of train takes its place.
    for split, count in (
        (Split.TRAIN, 12),
        (Split.TEST, 3),
        (Split.VALID_TRAIN, 10),
        (Split.VALID_TEST, 2),
    ):
        pipeline = load("tfds:tiny_any_size", split, Config(**options))
        assert pipeline.spec.shape == keys.ImageShape(19, 19, 1, 4)
        assert pipeline.spec.num_examples == count
        # A checkpoint records it: another version may have other last images.
        names = ["divided_for_test", "divided_for_validation"]
        split_fingerprints = dict.fromkeys(
            names[: 1 + split.is_held_out], "tiny_any_size/1.0.0:15"
        )
        assert pipeline.spec.split_fingerprints == split_fingerprints


@pytest.mark.parametrize(
    "name", ["mnist", "cifar10", "norb", "svhn", "tfds:fashion_mnist"]
)
def test_without_network_tfds_is_not_asked(monkeypatch, tmp_path, name):
    monkeypatch.delattr(tfds.core.DatasetBuilder, "download_and_prepare")
    monkeypatch.setattr(tfds.core.constants, "DATA_DIR", str(tmp_path))
    # A port that nothing listens on: every connection is refused.
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    with pytest.raises(UserError, match="--data_dir"):
        load(name, Split.TRAIN, Config())
