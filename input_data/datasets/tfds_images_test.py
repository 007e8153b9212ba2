import os
import shutil
import urllib.error
import urllib.request
from unittest.mock import Mock

import numpy as np
import pytest
import tensorflow_datasets as tfds

from common.errors import UserError
from input_data import keys, stored
from input_data.registry import Split
from testing import tiny_files
from testing.splits import batches, load

FROM_TFDS = ["mnist", "fashion_mnist", "cifar10", "norb", "svhn"]


def forbid(*_, **__):
    raise urllib.error.HTTPError("", 403, "forbidden", None, None)


@pytest.mark.parametrize("name", FROM_TFDS)
def test_sets_of_the_paper_are_downloaded(name, monkeypatch, tmp_path):
    monkeypatch.setattr(urllib.request, "urlopen", forbid)
    monkeypatch.setattr(tfds.core.constants, "DATA_DIR", str(tmp_path))
    with tfds.testing.mock_data(num_examples=40):
        for split in (Split.TRAIN, Split.TEST):
            assert load(name, split).spec.num_examples == 40


def test_images_and_labels_are_those_of_the_set(tmp_path):
    tiny_files.prepare_tfds(tmp_path)
    pipeline = load("tfds:tiny_photos", Split.TEST, tmp_path)
    ((x, _),) = pipeline.evaluation_batches(100)
    # TFDS has its own order.
    images = tiny_files.random_images(tiny_files.NUM_TEST, 20, 24, 3) / 255
    distances = abs(x[keys.IMAGES][:, np.newaxis] - images).max((2, 3, 4))
    numbers = distances.argmin(axis=1)
    assert sorted(numbers) == list(range(tiny_files.NUM_TEST))
    assert distances.min(axis=1).max() < 1e-6
    np.testing.assert_array_equal(x[keys.RECONS_LABEL], numbers % 4)
    # Damaged files are named.
    (path,) = tmp_path.rglob("*train.tfrecord*")
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(UserError, match=f"{tmp_path}/tiny_photos"):
        load("tfds:tiny_photos", Split.TRAIN, tmp_path)


def test_images_of_many_sizes_and_no_test_split(tmp_path):
    other, builder = tmp_path / "other", tiny_files.TinyAnySize
    tiny_files.prepare_tfds(tmp_path, builder)
    tiny_files.prepare_tfds(other, builder, file_format="array_record")
    name = "tfds:tiny_any_size"
    with pytest.raises(UserError, match="--image_size"):
        load(name, Split.TRAIN, tmp_path)
    # The last fifth of the training images takes the place of the split test.
    for split, count in zip(Split, (12, 3, 10, 2), strict=True):
        spec = load(name, split, tmp_path, image_size=19).spec
        reordered = load(name, split, other, image_size=19).spec
        assert spec.shape == keys.ImageShape(19, 19, 1, 4)
        assert spec.num_examples == count
        version = "tiny_any_size/1.0.0:15"
        expected = {"divided_for_test": version}
        if split.is_held_out:
            expected["divided_for_validation"] = version
        assert spec.split_fingerprints == expected
        expected = dict.fromkeys(expected, f"{version}:array_record")
        assert reordered.split_fingerprints == expected


@pytest.mark.parametrize("image_size", [None, 19])
@pytest.mark.parametrize("split", [Split.TRAIN, Split.VALID_TEST])
def test_large_sets_stay_on_disk(tmp_path, monkeypatch, image_size, split):
    records, by_index = tmp_path / "records", tmp_path / "by_index"
    tiny_files.prepare_tfds(records)
    tiny_files.prepare_tfds(by_index, file_format="array_record")

    def everything(folder):
        settings = {"image_size": image_size, "features_dir": str(tmp_path)}
        pipeline = load("tfds:tiny_photos", split, folder, **settings)
        trained = batches(pipeline, 4, 0, 5)
        tested = pipeline.evaluation_batches(4)
        return [pipeline.spec.num_images, *trained, *tested]

    in_memory = everything(records)
    np.testing.assert_equal(everything(by_index), in_memory)
    monkeypatch.setattr(stored, "MEMORY_BYTES", 0)
    np.testing.assert_equal(everything(by_index), in_memory)
    assert not list(tmp_path.glob("images-*"))
    np.testing.assert_equal(everything(records), in_memory)
    (copy,) = tmp_path.glob("images-*")
    np.testing.assert_equal(everything(records), in_memory)
    os.truncate(copy, 1000)
    with pytest.raises(UserError, match=copy.name):
        everything(records)


def load_photos(folder, split=Split.TRAIN, **settings):
    settings = {"features_dir": str(folder), **settings}
    return load("tfds:tiny_photos", split, folder, **settings)


@pytest.mark.parametrize("file_format", ["tfrecord", "array_record"])
def test_sets_that_were_built_again(tmp_path, monkeypatch, file_format):
    monkeypatch.setattr(stored, "MEMORY_BYTES", 0)

    def build(folder):
        tiny_files.prepare_tfds(tmp_path / folder, file_format=file_format)
        return tmp_path / folder

    def labels(pipeline):
        ((x, _),) = pipeline.evaluation_batches(100)
        return x[keys.RECONS_LABEL]

    first = build("first")
    before, same = load_photos(first), load_photos(build("second"))
    assert before.description() == same.description()
    expected = 3 - labels(before)
    paths = first.rglob("tiny_photos-*")
    times = {path: path.stat().st_mtime_ns for path in paths}
    shutil.rmtree(first / "tiny_photos")
    generate = tiny_files.TinyPhotos._generate_examples

    def others(self, count):
        for number, example in generate(self, count):
            image, label = 255 - example["image"], 3 - example["label"]
            yield number, {"image": image, "label": label}

    monkeypatch.setattr(tiny_files.TinyPhotos, "_generate_examples", others)
    for path in build("first").rglob("tiny_photos-*"):
        os.utime(path, ns=(times[path], times[path]))
    after = load_photos(first)
    np.testing.assert_array_equal(labels(after), expected)
    assert after.description() != same.description()


def test_copies_are_those_of_their_settings(tmp_path, monkeypatch):
    monkeypatch.setattr(stored, "MEMORY_BYTES", 0)
    tiny_files.prepare_tfds(tmp_path)
    found = {
        load_photos(tmp_path, split, image_size=19, resize=m).description()
        for split in (Split.TRAIN, Split.TEST)
        for m in ("pad", "crop", "stretch")
    }
    assert len(found) == len(list(tmp_path.glob("images-*"))) == 6


@pytest.mark.parametrize(
    "name", ["no_such_set", "mnist/no_such_config", "mnist:99.0.0", "smallnorb"]
)
def test_unknown_and_unsuitable_sets_are_named(tmp_path, name, monkeypatch):
    # smallnorb, if it could be downloaded, has no feature "label".
    monkeypatch.setattr(urllib.request, "urlopen", forbid)
    with tfds.testing.mock_data(), pytest.raises(UserError, match=name):
        load(f"tfds:{name}", Split.TRAIN, tmp_path)


@pytest.mark.parametrize("name", [*FROM_TFDS, "tfds:fashion_mnist"])
def test_without_a_network_nothing_is_downloaded(monkeypatch, tmp_path, name):
    download = Mock()
    builder = tfds.core.DatasetBuilder
    monkeypatch.setattr(builder, "download_and_prepare", download)
    monkeypatch.setattr(tfds.core.constants, "DATA_DIR", str(tmp_path))
    # No server listens on this port.
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    with pytest.raises(UserError, match="--data_dir"):
        load(name, Split.TRAIN)
    download.assert_not_called()
