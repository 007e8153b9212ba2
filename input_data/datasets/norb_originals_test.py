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
from input_data.datasets import norb
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


def test_reads_original_files_plain_and_gzipped(tmp_path):
    images, labels = write_originals(tmp_path)
    for training in (True, False):
        found = norb._read_originals(tmp_path, training)
        for ours, written in zip(found, (images, labels, META), strict=True):
            np.testing.assert_array_equal(ours, written)
    records = map(tiny_files.norb_example, images, labels.tolist(), META)
    folder = tmp_path / "records"
    folder.mkdir()
    tiny_files.write_records(folder / "testduo.tfrecords", list(records))
    both = (splits.load("norb", Split.TEST, f) for f in (tmp_path, folder))
    one, other = (next(pipeline.evaluation_batches(6)) for pipeline in both)
    np.testing.assert_equal(one, other)
    np.testing.assert_array_equal(one[0][keys.RECONS_LABEL], labels)


def test_reads_tfds(monkeypatch):
    monkeypatch.setattr(
        urllib.request, "urlopen", lambda *_, **__: io.BytesIO()
    )
    cameras = tiny_files.random_images(2, 96, 96, 1)
    labels = {"category": 3, "elevation": 8, "azimuth": 17, "lighting": 5}

    def examples_of(self, split, **_):
        # The azimuth is in steps of 20 degrees.
        values = {f"label_{name}": np.int64(labels[name]) for name in labels}
        values["instance"] = np.int64(7)
        values |= {"image": cameras[0], "image2": cameras[1]}
        return tf.data.Dataset.from_tensors(values)

    with tfds.testing.mock_data(as_dataset_fn=examples_of):
        found = norb._read_originals(None, training=False)
    content = cameras[None, ..., 0], [3], [[7, 8, 34, 5]]
    for ours, expected in zip(found, content, strict=True):
        np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize("kind", ["dat", "cat", "info"])
@pytest.mark.parametrize("damage", ["vanish", "cut"])
def test_damaged_originals_are_refused(tmp_path, kind, damage):
    write_originals(tmp_path)
    (path,) = tmp_path.glob(f"*-testing-{kind}.mat.gz")
    tiny_files.DAMAGE[damage](path)
    with pytest.raises(UserError):
        splits.load("norb", Split.TEST, tmp_path)
