import gzip
import struct

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from input_data.datasets import tfds_images
from input_data.formats import norb_matrix
from input_data.formats.norb_records import read_records
from input_data.generators import norb_conversion
from old import durable
from old.errors import UserError
from testing import tiny_files

BYTE, INTEGER, FLOAT = 0x1E3D4C55, 0x1E3D4C54, 0x1E3D4C51
META = np.arange(24, dtype="<i4").reshape(6, 4) % 6


def matrix_bytes(magic, shape, content):
    padded = (*shape, *[1] * (3 - len(shape)))
    return (
        struct.pack("<Ii", magic, len(shape))
        + np.array(padded, "<i4").tobytes()
        + content
    )


def write_originals(folder, meta=META):
    """The six original files, the test's gzipped; returns what they hold."""
    images = tiny_files.random_images(len(meta), 2, 96, 96)
    labels = np.arange(len(meta), dtype="<i4") % 5
    for split, suffix in (("training", ""), ("testing", ".gz")):
        for kind, content in (
            ("dat", matrix_bytes(BYTE, images.shape, images.tobytes())),
            ("cat", matrix_bytes(INTEGER, labels.shape, labels.tobytes())),
            ("info", matrix_bytes(INTEGER, meta.shape, meta.tobytes())),
        ):
            name = f"smallnorb-5x01235x9x18x6x2x96x96-{split}-{kind}.mat"
            if suffix:
                content = gzip.compress(content)
            (folder / (name + suffix)).write_bytes(content)
    return images, labels


def test_converts_original_files_plain_and_gzipped(tmp_path):
    images, labels = write_originals(tmp_path)
    output = tmp_path / "new" / "records"
    norb_conversion.convert(str(tmp_path), str(output))
    assert sorted(path.name for path in output.iterdir()) == [
        "testduo.tfrecords",
        "trainduo.tfrecords",
    ]
    for path in output.iterdir():
        found_images, found_labels = read_records(path)
        np.testing.assert_array_equal(found_images, images)
        np.testing.assert_array_equal(found_labels, labels)


def test_novel_viewpoints_are_kept_for_a_test(tmp_path):
    azimuths = np.array([0, 2, 4, 30, 32, 34, *range(6, 30, 2)])
    elevations = np.array([0, 1, 2, 3, 4, 5, 6, 7, 8] * 2)
    meta = np.zeros((18, 4), "<i4")
    meta[:, 1], meta[:, 2] = elevations, azimuths
    images, _ = write_originals(tmp_path, meta)
    for novel, familiar in (
        ("azimuth", np.arange(18) < 6),
        ("elevation", np.arange(18) % 9 < 3),
    ):
        output = tmp_path / novel
        norb_conversion.convert(str(tmp_path), str(output), novel)
        for path, chosen in (
            (output / "trainduo.tfrecords", familiar),
            (output / "testduo.tfrecords", familiar),
            (output / "novel" / "testduo.tfrecords", ~familiar),
        ):
            found, labels = read_records(path)
            np.testing.assert_array_equal(found, images[chosen])
            np.testing.assert_array_equal(labels, (np.arange(18) % 5)[chosen])
        assert len(list(output.rglob("*.tfrecords"))) == 3


def test_a_source_without_novel_viewpoints_is_refused(tmp_path):
    write_originals(tmp_path, np.zeros((6, 4), "<i4"))
    with pytest.raises(UserError, match="no image has a novel elevation"):
        norb_conversion.convert(
            str(tmp_path), str(tmp_path / "out"), "elevation"
        )
    assert not (tmp_path / "out").exists()


def test_converting_again_gives_the_same_bytes(tmp_path):
    write_originals(tmp_path)
    outputs = [tmp_path / "first", tmp_path / "second"]
    for output in outputs:
        norb_conversion.convert(str(tmp_path), str(output))
    first, second = (
        (output / "trainduo.tfrecords").read_bytes() for output in outputs
    )
    assert first == second


def test_converts_tfds(tmp_path, monkeypatch):
    monkeypatch.setattr(tfds_images, "has_network", lambda: True)

    def examples(self, split, **_):
        cameras = np.arange(2 * 96 * 96).reshape(2, 96, 96, 1) % 251
        values = {
            "image": cameras[0].astype(np.uint8),
            "image2": cameras[1].astype(np.uint8),
            "label_category": np.int64(3),
            "instance": np.int64(7),
            "label_elevation": np.int64(8),
            "label_azimuth": np.int64(17),
            "label_lighting": np.int64(5),
        }
        return tf.data.Dataset.from_tensors(values).repeat(4)

    with tfds.testing.mock_data(as_dataset_fn=examples):
        norb_conversion.convert(None, str(tmp_path))
    images, labels = read_records(tmp_path / "testduo.tfrecords")
    expected = (np.arange(2 * 96 * 96).reshape(2, 96, 96) % 251).astype("u1")
    np.testing.assert_array_equal(images, np.stack([expected] * 4))
    np.testing.assert_array_equal(labels, [3] * 4)
    content = (tmp_path / "testduo.tfrecords").read_bytes()
    # Instance, elevation, azimuth (2 * 17), lighting: a packed list.
    assert bytes([4, 7, 8, 34, 5]) in content

    def damaged(self, split, **_):
        return examples(self, split).map(
            lambda example: tf.debugging.check_numerics(float("nan"), "cut off")
        )

    with (
        tfds.testing.mock_data(as_dataset_fn=damaged),
        pytest.raises(UserError, match="the files of smallnorb in .* damaged"),
    ):
        norb_conversion.convert(None, str(tmp_path / "other"))


@pytest.mark.parametrize(
    ("kind", "damage", "message"),
    [
        ("dat", lambda content: content[:-1], "cut off"),
        ("dat", lambda content: content + b"x", "damaged"),
        ("dat", lambda content: b"", "cut off"),
        ("cat", lambda content: content[:10], "cut off"),
        ("cat", lambda content: b"\0\0\0\0" + content[4:], "not a NORB"),
        (
            "info",
            lambda content: matrix_bytes(INTEGER, (2, 4), bytes(32)),
            "expected",
        ),
        (
            "cat",
            lambda content: matrix_bytes(INTEGER, (6,), b"\5\0\0\0" * 6),
            "labels from 5",
        ),
        (
            "dat",
            lambda content: matrix_bytes(
                INTEGER, (6, 2, 96, 96), bytes(6 * 2 * 96 * 96 * 4)
            ),
            "bytes",
        ),
    ],
)
def test_damaged_originals_are_named(tmp_path, kind, damage, message):
    write_originals(tmp_path)
    (path,) = tmp_path.glob(f"*-training-{kind}.mat")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UserError, match=f"{path}.*{message}"):
        norb_conversion.convert(str(tmp_path), str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_other_types_of_values_are_refused(tmp_path):
    path = tmp_path / "x.mat"
    path.write_bytes(matrix_bytes(FLOAT, (2,), bytes(8)))
    with pytest.raises(UserError, match="not a NORB matrix"):
        norb_matrix.read_matrix(path)


def test_missing_and_doubled_originals_are_named(tmp_path):
    with pytest.raises(UserError, match=r"training-dat\.mat"):
        norb_conversion.convert(str(tmp_path), str(tmp_path / "out"))
    write_originals(tmp_path)
    (tmp_path / "other-training-cat.mat").touch()
    with pytest.raises(UserError, match="other-training-cat"):
        norb_conversion.convert(str(tmp_path), str(tmp_path / "out"))


def test_nothing_is_written_before_all_is_read(tmp_path):
    write_originals(tmp_path)
    (cat,) = tmp_path.glob("*-testing-cat.mat*")
    cat.unlink()
    with pytest.raises(UserError, match="testing-cat"):
        norb_conversion.convert(str(tmp_path), str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_records_that_are_there_stay(tmp_path):
    write_originals(tmp_path)
    (tmp_path / "testduo.tfrecords").write_text("before")
    with pytest.raises(UserError, match="testduo.tfrecords is there already"):
        norb_conversion.convert(str(tmp_path), str(tmp_path))
    assert (tmp_path / "testduo.tfrecords").read_text() == "before"
    assert not (tmp_path / "trainduo.tfrecords").exists()


def test_a_full_disk_leaves_no_part_of_a_file(tmp_path, monkeypatch):
    write_originals(tmp_path)
    monkeypatch.setattr(durable, "flush", fail_on_a_full_disk)
    output = tmp_path / "out"
    with pytest.raises(UserError, match=r"trainduo.*: No space left"):
        norb_conversion.convert(str(tmp_path), str(output))
    assert not list(output.iterdir())


def fail_on_a_full_disk(path):
    raise OSError(28, "No space left on device")


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    write_originals(tmp_path)
    blocked = tmp_path / "file"
    blocked.touch()
    with pytest.raises(
        UserError, match=f"{blocked} cannot be made: File exists"
    ):
        norb_conversion.convert(str(tmp_path), str(blocked))
