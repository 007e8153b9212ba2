import gzip
import io
import struct
import urllib.request

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from common.errors import UserError
from input_data import keys
from input_data.datasets.norb import convert
from input_data.registry import Split
from testing import splits, tiny_files

BYTE, INTEGER = 0x1E3D4C55, 0x1E3D4C54
META = np.arange(24, dtype="<i4").reshape(6, 4) % 6


def matrix_bytes(magic, array):
    padded = (*array.shape, *[1] * (3 - array.ndim))
    header = struct.pack("<Ii", magic, array.ndim)
    return header + np.array(padded, "<i4").tobytes() + array.tobytes()


def write_originals(folder, meta=META):
    """The six original files, the test's gzipped; returns what they hold."""
    images = tiny_files.random_images(len(meta), 2, 96, 96)
    labels = np.arange(len(meta), dtype="<i4") % 5
    for split, suffix in (("training", ""), ("testing", ".gz")):
        for kind, content in (
            ("dat", matrix_bytes(BYTE, images)),
            ("cat", matrix_bytes(INTEGER, labels)),
            ("info", matrix_bytes(INTEGER, meta)),
        ):
            name = f"smallnorb-5x01235x9x18x6x2x96x96-{split}-{kind}.mat"
            if suffix:
                content = gzip.compress(content)
            (folder / (name + suffix)).write_bytes(content)
    return images, labels


def read(path):
    """Images and labels of a record file, and the meta of each record."""
    records = list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())
    lengths = {"height": 1, "width": 1, "depth": 1, "label": 1, "meta": 4}
    spec = {k: tf.io.FixedLenFeature(n, tf.int64) for k, n in lengths.items()}
    spec["image_raw"] = tf.io.FixedLenFeature((), tf.string)
    features = tf.io.parse_example(records, spec)
    size = [features[key] for key in ("height", "width", "depth")]
    assert (np.concatenate(size, axis=1) == [96, 96, 2]).all()
    pixels = tf.io.decode_raw(features["image_raw"], tf.uint8).numpy()
    labels = features["label"].numpy()[:, 0]
    return pixels.reshape(-1, 2, 96, 96), labels, features["meta"].numpy()


def test_converts_original_files_plain_and_gzipped(tmp_path):
    written = *write_originals(tmp_path), META
    output = tmp_path / "new" / "records"
    convert(str(tmp_path), str(output))
    names = "testduo.tfrecords", "trainduo.tfrecords"
    assert {path.name for path in output.iterdir()} == {*names}
    for name in names:
        np.testing.assert_equal(read(output / name), written)


def test_original_files_are_read_directly(tmp_path):
    _, labels = write_originals(tmp_path)
    convert(str(tmp_path), str(tmp_path / "records"))
    batches = [
        next(splits.load("norb", Split.TEST, folder).evaluation_batches(6))
        for folder in (tmp_path, tmp_path / "records")
    ]
    for (x, y), (other_x, other_y) in [batches]:
        np.testing.assert_array_equal(x[keys.IMAGES], other_x[keys.IMAGES])
        np.testing.assert_array_equal(y[keys.LABELS], other_y[keys.LABELS])
    np.testing.assert_array_equal(batches[0][1][keys.LABELS].argmax(1), labels)


def test_converts_tfds(tmp_path, monkeypatch):
    monkeypatch.setattr(
        urllib.request, "urlopen", lambda *_, **__: io.BytesIO()
    )
    cameras = tiny_files.random_images(2, 96, 96, 1)

    def examples(self, split, **_):
        values = {
            "image": cameras[0],
            "image2": cameras[1],
            "label_category": np.int64(3),
            "instance": np.int64(7),
            "label_elevation": np.int64(8),
            "label_azimuth": np.int64(17),  # in steps of 20 degrees
            "label_lighting": np.int64(5),
        }
        return tf.data.Dataset.from_tensors(values)

    with tfds.testing.mock_data(as_dataset_fn=examples):
        convert(None, str(tmp_path))
    images, labels, meta = read(tmp_path / "testduo.tfrecords")
    np.testing.assert_array_equal(images, cameras[None, ..., 0])
    assert labels == [3]
    np.testing.assert_array_equal(meta, [[7, 8, 34, 5]])


@pytest.mark.parametrize("kind", ["dat", "cat", "info"])
@pytest.mark.parametrize("damage", ["vanish", "cut"])
def test_damaged_originals_leave_no_output(tmp_path, kind, damage):
    write_originals(tmp_path)
    (path,) = tmp_path.glob(f"*-testing-{kind}.mat.gz")
    tiny_files.DAMAGE[damage](path)
    with pytest.raises(UserError):
        convert(str(tmp_path), str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
