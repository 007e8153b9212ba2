"""Images on disk give the batches of images in memory."""

import dataclasses
import hashlib
from unittest.mock import Mock

import numpy as np
import pytest
from PIL import ExifTags, Image

from common.errors import UserError
from input_data import registry, stored
from input_data.files import decode_image, image_shape
from input_data.stored import StoredRows, blocks, digest, rows_in_file
from testing import tiny_files
from testing.splits import resolved


def everything(config):
    """Batches, specs and figures of the splits and kinds of a data set."""
    found = []
    for validate, num_targets in ((False, 1), (True, 2)):
        changed = {"validate": validate, "num_targets": num_targets}
        one = dataclasses.replace(config, **changed)
        for train in (True, False):
            pipeline = registry.load(one, train)
            trained = pipeline.training_batches(6, 3, 0, 7)
            found += [pipeline.spec, *trained.as_numpy_iterator()]
            found += pipeline.evaluation_batches(4)
        found.append(pipeline.evaluation_images([0, 2]))
    below = {"num_targets": 2, "pairs": "below", "train": False}
    pipeline = registry.load(dataclasses.replace(config, **below), train=False)
    return [*found, *pipeline.evaluation_batches(4)]


@pytest.mark.parametrize("name", ["arrays", "images"])
def test_both_sources_give_the_same_bytes(name, tmp_path, monkeypatch):
    tiny_files.WRITERS[name](tmp_path)
    settings = {"color": True, "image_size": 18} if name == "images" else {}
    # Few, as there are 10,000 pairs by default.
    settings |= {"data_dir": tmp_path, "eval_size": 30}
    config = resolved(name, **settings)
    in_memory = everything(config)
    monkeypatch.setattr(stored, "MEMORY_BYTES", 0)
    read = Mock(side_effect=StoredRows.__array__, autospec=True)
    monkeypatch.setattr(StoredRows, "__array__", lambda *a, **k: read(*a, **k))
    np.testing.assert_equal(everything(config), in_memory)
    assert read.call_count > 9


@pytest.mark.parametrize(
    ("name", "pattern", "damage"),
    [
        *(("images", "*.png", d) for d in ("vanish", "cut", "blacken")),
        *(("arrays", "x_train.npy", d) for d in ("vanish", "cut", "write")),
        ("arrays", "y_train.npy", "write"),
    ],
)
def test_later_damage_is_named(name, pattern, damage, tmp_path, monkeypatch):
    monkeypatch.setattr(stored, "MEMORY_BYTES", 0)
    tiny_files.WRITERS[name](tmp_path)
    if name == "arrays":
        np.save(tmp_path / "y_train", np.eye(4)[np.arange(15) % 4])
    pipeline = registry.load(resolved(name, tmp_path), train=True)
    for path in tmp_path.rglob(pattern):
        tiny_files.DAMAGE[damage](path)
    message = pytest.raises(UserError, match=pattern.strip("*"))
    with message, pipeline.user_errors():
        list(pipeline.training_batches(4, 0, 0, 2))


def test_rows_and_digest_are_those_of_the_array(tmp_path):
    array, path = tiny_files.random_images(1100, 3, 2), tmp_path / "x.npy"
    np.save(path, array)
    rows = rows_in_file(path, np.lib.format.open_memmap(path, mode="r"))
    order = np.random.default_rng(0).permutation(1100)
    shuffled = rows[order][5:-3]
    np.testing.assert_array_equal(shuffled, array[order][5:-3])
    assert rows.description() == hashlib.sha256(array).hexdigest()
    assert [len(block) for block in blocks(rows)] == [512, 512, 76]
    assert digest(shuffled) == hashlib.sha256(array[order][5:-3]).hexdigest()
    assert shuffled.description() != rows.description()


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
@pytest.mark.parametrize("suffix", ["jpg", "png", "webp"])
def test_headers_tell_the_shape(tmp_path, orientation, suffix):
    path, exif = tmp_path / f"image.{suffix}", Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    Image.new("RGB", (9, 6)).save(path, exif=exif)
    for color in (True, False):
        image = decode_image(path.read_bytes(), path, color)
        assert image_shape(path, color) == image.shape
