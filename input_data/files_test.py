"""Formats of files: what they hold, and what damaged ones are reported as."""

import io
import shutil

import numpy as np
import pytest
from PIL import Image

from common.errors import UserError
from config import Config
from input_data import features as keys
from input_data import image_file, registry
from input_data.datasets import affnist, norb, svhn
from input_data.datasets.mnist_record_files import PAIR, SINGLE
from input_data.records import RecordFiles, encode_example, write_records
from input_data.registry import Split
from testing import tiny_files

# For each data set: what writes its files, and one of them.
FILES = {
    "affnist": (tiny_files.write_affnist, "training_and_validation.mat"),
    "arrays": (tiny_files.write_arrays, "x_train.npy"),
    "cifar10": (tiny_files.write_cifar10, "data_batch_3.bin"),
    "images": (tiny_files.write_images, "train/class0/0.png"),
    "mnist": (tiny_files.write_idx, "train-images-idx3-ubyte"),
    "norb": (tiny_files.write_norb, "trainduo.tfrecords"),
    "svhn": (tiny_files.write_svhn, "train_32x32.mat"),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["missing", "truncated", "empty", "text"])
def test_bad_files_are_named(name, damage, tmp_path):
    write, file = FILES[name]
    write(tmp_path)
    path = tmp_path / file
    if not path.exists():
        path = path.with_name(f"{path.name}.gz")
    content = path.read_bytes()
    if damage == "missing":
        if name == "images":
            shutil.rmtree(path.parents[1])
            (tmp_path / "train").mkdir()
            path = path.parents[1]
        else:
            path.unlink()
    elif damage == "truncated":
        path.write_bytes(content[: len(content) // 2])
    else:
        path.write_bytes(b"" if damage == "empty" else b"no data\n" * 40)
    config = Config(data_dir=str(tmp_path))
    with pytest.raises(UserError) as caught:
        list(registry.load(name, Split.TRAIN, config).evaluation_batches(100))
    assert path.name.removesuffix(".gz") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_affnist_images_are_columns(tmp_path):
    images = tiny_files.random_images(3, 40, 40)
    path = tmp_path / affnist.file_name(Split.TEST)
    path.write_bytes(
        tiny_files.affnist_bytes(images, np.array([3, 1, 4], "u1"))
    )
    pipeline = registry.load(
        "affnist", Split.TEST, Config(data_dir=str(tmp_path))
    )
    ((x, _),) = pipeline.evaluation_batches(3)
    assert x[keys.RECONS_LABEL].tolist() == [3, 1, 4]
    np.testing.assert_array_equal(
        x[keys.IMAGES][..., 0], images / np.float32(255)
    )


def test_label_ten_of_svhn_is_the_digit_zero(tmp_path):
    images = tiny_files.random_images(10, 32, 32, 3)
    labels = np.arange(1, 11, dtype=np.uint8)
    path = tmp_path / "test_32x32.mat"
    path.write_bytes(tiny_files.svhn_bytes(images, labels))
    data = svhn.read_svhn(tmp_path, training=False)
    np.testing.assert_array_equal(data.images, images)
    np.testing.assert_array_equal(data.labels, [1, 2, 3, 4, 5, 6, 7, 8, 9, 0])


def test_norb_records_are_depth_first(tmp_path):
    images = tiny_files.random_images(2, 2, 96, 96)
    path = tmp_path / "x.tfrecords"
    tiny_files.write_records(path, map(tiny_files.norb_example, images, [4, 0]))
    read_images, labels = norb.read_records(path)
    assert labels.tolist() == [4, 0]
    assert read_images.shape in (images.shape, (2, 96, 96, 2))
    np.testing.assert_array_equal(
        np.sort(read_images.ravel()), np.sort(images.ravel())
    )


def single(label, seed, size=28):
    image = np.random.default_rng(seed).integers(0, 256, (size, size), "u1")
    features = {"height": size, "width": size, "depth": 1, "label": label}
    return image, encode_example({**features, "image_raw": image.tobytes()})


def test_records_are_read_in_any_order(tmp_path):
    images, paths = [], []
    for shard in range(2):
        made = [single(n, 3 * shard + n) for n in range(3)]
        images += [image for image, _ in made]
        paths.append(tmp_path / f"shard{shard}")
        write_records(paths[-1], [record for _, record in made])
    files = RecordFiles(paths, SINGLE)
    assert len(files) == 6
    labels, (found,) = files.read(np.array([5, 0, 3, 0]))
    assert np.ravel(labels).tolist() == [2, 0, 0, 0]
    expected = np.stack([images[n] for n in (5, 0, 3, 0)])
    np.testing.assert_array_equal(found.reshape(expected.shape), expected)


@pytest.mark.parametrize("place", [3, 40, 500])
def test_a_flipped_bit_in_records_is_found(tmp_path, place):
    path = tmp_path / "x.tfrecords"
    write_records(path, [single(1, n)[1] for n in range(3)])
    content = bytearray(path.read_bytes())
    content[len(content) // 3 + place] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match="x.tfrecords"):
        RecordFiles([path], SINGLE).read(np.array([0, 1, 2]))


@pytest.mark.parametrize("labels", [(3, 3), (1, 10)])
def test_wrong_labels_of_pairs_are_found(tmp_path, labels):
    image = bytes(28 * 28)
    features = {"height": 28, "width": 28, "depth": 1}
    features |= dict(zip(PAIR.labels, labels, strict=True))
    features |= dict.fromkeys(PAIR.images, image)
    write_records(tmp_path / "x", [encode_example(features)])
    with pytest.raises(UserError, match="/x"):
        RecordFiles([tmp_path / "x"], PAIR).read(np.array([0]))


def encoded(image, kind="PNG", **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


GRAY = np.random.default_rng(0).integers(0, 256, (5, 7), "u1")
RGB = np.random.default_rng(1).integers(0, 256, (5, 7, 3), "u1")


@pytest.mark.parametrize("invert", [False, True])
def test_modes_of_images(invert):
    def decode(image, color):
        return image_file.decode(encoded(image), "a", color, invert)

    gray = 255 - GRAY if invert else GRAY
    rgb = 255 - RGB if invert else RGB
    for image in (Image.fromarray(GRAY), Image.fromarray(GRAY).convert("RGB")):
        result = decode(image, False)[..., 0].astype(int)
        assert abs(result - gray).max() <= 1
    np.testing.assert_array_equal(decode(Image.fromarray(RGB), True), rgb)
    np.testing.assert_array_equal(
        decode(Image.fromarray(GRAY), True), np.repeat(gray[..., None], 3, -1)
    )
    # Transparent pixels are black.
    alpha = np.zeros((5, 7, 1), "u1")
    alpha[2:] = 255
    image = Image.fromarray(np.concatenate([RGB, alpha], axis=-1))
    result = decode(image, True)
    np.testing.assert_array_equal(result[2:], rgb[2:])
    assert not result[:2].any()


def test_orientation_and_animations():
    exif = Image.Exif()
    exif[0x0112] = 6  # rotated by 90 degrees
    content = encoded(Image.fromarray(GRAY), exif=exif)
    turned = image_file.decode(content, "a", False)[..., 0]
    np.testing.assert_array_equal(turned, np.rot90(GRAY, -1))
    frames = [Image.fromarray(np.full((4, 4), v, "u1")) for v in (9, 200)]
    content = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert (image_file.decode(content, "a", False) == 9).all()
