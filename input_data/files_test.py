"""Files that are missing or damaged, and packed ones, of every data set."""

import gzip
import shutil

import numpy as np
import pytest

from common.errors import UserError
from config import Config
from input_data import features as keys
from input_data import registry
from input_data.registry import Split
from testing import tiny_files

# For each data set the function that writes its files, and one of them.
FILES = {
    "affnist": (tiny_files.write_affnist, "training_and_validation.mat"),
    "arrays": (tiny_files.write_arrays, "x_train.npy"),
    "cifar10": (tiny_files.write_cifar10, "data_batch_3.bin"),
    "images": (tiny_files.write_images, "train/class0/0.png"),
    "mnist": (tiny_files.write_idx, "train-images-idx3-ubyte.gz"),
    "norb": (tiny_files.write_norb, "trainduo.tfrecords"),
    "svhn": (tiny_files.write_svhn, "train_32x32.mat"),
}


def load(name, folder, split=Split.TRAIN):
    pipeline = registry.load(name, split, Config(data_dir=str(folder)))
    return list(pipeline.evaluation_batches(100))


def check_error(name, folder, expected):
    with pytest.raises(UserError) as caught:
        load(name, folder)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["truncated", "empty", "text"])
def test_damaged_files_are_named(name, damage, tmp_path):
    write, file = FILES[name]
    write(tmp_path)
    path = tmp_path / file
    content = {
        "truncated": path.read_bytes()[: path.stat().st_size // 2],
        "empty": b"",
        "text": b"no data\n" * 40,
    }
    path.write_bytes(content[damage])
    check_error(name, tmp_path, path.name)


@pytest.mark.parametrize("name", FILES)
def test_missing_files_are_named(name, tmp_path):
    check_error(name, tmp_path / "none", "none")
    check_error(name, tmp_path, str(tmp_path))
    write, file = FILES[name]
    write(tmp_path)
    path = tmp_path / file
    if name == "images":
        path = path.parents[2]
        shutil.rmtree(path / "train")
        (path / "train").mkdir()
    else:
        path.unlink()
    check_error(name, tmp_path, path.name.removesuffix(".gz"))


@pytest.mark.parametrize("name", ["affnist", "arrays", "images"])
def test_a_folder_is_required(name):
    with pytest.raises(UserError, match="--data_dir"):
        registry.load(name, Split.TRAIN, Config())


@pytest.mark.parametrize(
    ("name", "file", "content"),
    [
        # Labels out of range, and fewer labels than images.
        ("cifar10", "data_batch_3.bin", b"\x0a" + bytes(3072)),
        ("mnist", "train-labels-idx1-ubyte", bytes([0, 0, 8, 1, 0, 0, 0, 0])),
    ],
)
def test_unsuitable_values_are_named(name, file, content, tmp_path):
    FILES[name][0](tmp_path)
    (tmp_path / file).write_bytes(content)
    check_error(name, tmp_path, str(tmp_path))


@pytest.mark.parametrize(
    ("name", "file"),
    [("arrays", "x_test.npy"), ("mnist", "t10k-labels-idx1-ubyte")],
)
def test_gzipped_files_are_unpacked(name, file, tmp_path):
    FILES[name][0](tmp_path)
    ((before, _),) = load(name, tmp_path, Split.TEST)
    path = tmp_path / file
    packed = gzip.compress(path.read_bytes())
    path.unlink()
    (tmp_path / f"{file}.gz").write_bytes(packed)
    ((after, _),) = load(name, tmp_path, Split.TEST)
    for key in (keys.IMAGES, keys.RECONS_LABEL):
        np.testing.assert_array_equal(before[key], after[key])
