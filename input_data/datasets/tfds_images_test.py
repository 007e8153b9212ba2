import http.server
import socket
import threading
import time

import numpy as np
import pytest
import tensorflow_datasets as tfds

from common.errors import UserError
from config import Config
from input_data import features as keys
from input_data.datasets import cifar10, mnist, norb, svhn, tfds_images
from input_data.registry import load
from input_data.splits import Split
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


@pytest.mark.parametrize(
    ("name", "centred"),
    [("mnist", True), ("mnist:3.0.1", True), ("mnist_corrupted", False)],
)
def test_mnist_of_any_version_is_centred(name, centred):
    assert tfds_images.data_set(name).centred == centred


@pytest.mark.usefixtures("mocked")
def test_images_and_labels_stay_together():
    builder = tfds.builder("mnist")
    expected = list(builder.as_dataset(split="test").as_numpy_iterator())
    data = mnist.read_mnist(None, training=False)
    for image, label, example in zip(
        data.images, data.labels, expected, strict=True
    ):
        np.testing.assert_array_equal(image, example["image"])
        assert label == example["label"]


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


def test_damaged_files_of_tfds_are_an_error(tmp_path):
    tiny_files.prepare_tfds(tmp_path)
    (path,) = tmp_path.rglob("*train.tfrecord*")
    for damaged in (path.read_bytes()[:-5], b"garbage" * 30):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=f"tiny_photos in {tmp_path}"):
            load(
                "tfds:tiny_photos", Split.TRAIN, Config(data_dir=str(tmp_path))
            )


def test_files_of_a_format_that_is_not_read_are_named(tmp_path):
    tiny_files.prepare_tfds(tmp_path, file_format="array_record")
    with pytest.raises(UserError, match="of a format that is not read"):
        load("tfds:tiny_photos", Split.TRAIN, Config(data_dir=str(tmp_path)))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_set", "TFDS has no set of this name; see"),
        (
            "fashion_minst",
            r"of this name \(did you mean fashion_mnist\?\); see",
        ),
        ("mnist/no_such_config", "cannot be opened"),
        ("mnist:99.0.0", "cannot be opened"),
        ("imdb_reviews", "not a set of labelled images"),
        ("coco/2017", "not a set of labelled images"),
        ("smallnorb", "not a set of labelled images"),
        ("chexpert", "not a set of labelled images"),  # many for each image
    ],
)
def test_sets_that_cannot_be_used_are_named(tmp_path, name, message):
    with pytest.raises(UserError, match=f"tfds:.*{message}"):
        load(f"tfds:{name}", Split.TRAIN, Config(data_dir=str(tmp_path)))


def test_too_much_for_the_memory_is_refused(tmp_path):
    tiny_files.prepare_tfds(tmp_path)
    with pytest.raises(UserError, match=r"tiny_photos takes .* GB"):
        load(
            "tfds:tiny_photos",
            Split.TRAIN,
            Config(data_dir=str(tmp_path), image_size=200000),
        )


def refuse_downloads(monkeypatch, tmp_path):
    def fail(self, **_):
        raise AssertionError("TFDS was asked to download")

    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", fail)
    monkeypatch.setattr(tfds.core.constants, "DATA_DIR", str(tmp_path))


@pytest.mark.parametrize(
    "name", ["mnist", "cifar10", "norb", "svhn", "tfds:fashion_mnist"]
)
def test_without_network_tfds_is_not_asked(monkeypatch, tmp_path, name):
    refuse_downloads(monkeypatch, tmp_path)
    # A port that nothing listens on: every connection is refused.
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    message = r"googleapis\.com does not answer.*--data_dir.*--dataset=digits"
    with pytest.raises(UserError, match=message):
        load(name, Split.TRAIN, Config())


def test_a_network_that_does_not_answer_is_given_up(monkeypatch, tmp_path):
    refuse_downloads(monkeypatch, tmp_path)
    monkeypatch.setattr(tfds_images, "_PROBE_SECONDS", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setenv("https_proxy", address)
        start = time.monotonic()
        with pytest.raises(UserError, match="no network"):
            load("mnist", Split.TRAIN, Config())
    assert time.monotonic() - start < 10


def test_an_answer_of_an_error_is_a_network(monkeypatch):
    class Refusing(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_error(403)

        def log_message(self, *_):
            pass

    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with http.server.HTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setattr(tfds_images, "_PROBE_URL", address)
        assert tfds_images.has_network()
        server.shutdown()


def test_a_proxy_that_is_none_is_no_network(monkeypatch):
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("https_proxy", "http://proxy:port")
    assert not tfds_images.has_network()


def test_a_name_that_is_never_resolved_is_given_up(monkeypatch, tmp_path):
    refuse_downloads(monkeypatch, tmp_path)
    monkeypatch.setattr(tfds_images, "_PROBE_SECONDS", 1)
    monkeypatch.delenv("https_proxy", raising=False)
    monkeypatch.delenv("HTTPS_PROXY", raising=False)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: time.sleep(60))
    start = time.monotonic()
    with pytest.raises(UserError, match="no network"):
        load("mnist", Split.TRAIN, Config())
    assert time.monotonic() - start < 10


def test_tfds_that_hangs_is_given_up(monkeypatch):
    monkeypatch.setattr(tfds_images, "_OPEN_SECONDS", 0.5)
    monkeypatch.setattr(tfds, "builder", lambda *_, **__: time.sleep(60))
    with pytest.raises(UserError, match=r"does not answer.*--dataset=digits"):
        load("mnist", Split.TRAIN, Config())


def test_a_download_that_fails_is_one_message(monkeypatch, tmp_path):
    refuse_downloads(monkeypatch, tmp_path)
    monkeypatch.setattr(tfds_images, "has_network", lambda: True)
    with pytest.raises(UserError, match=r"asked to download.*--data_dir"):
        load("mnist", Split.TRAIN, Config())
