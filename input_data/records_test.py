import os

import numpy as np
import pytest

from common.errors import UserError
from input_data.datasets.mnist import PAIR, SINGLE
from input_data.records import FRAME_OVERHEAD, RecordFiles
from testing import tiny_files


def single(label, seed=0, shape=(6, 5, 1)):
    (image,) = tiny_files.random_images(1, *shape, seed=seed)
    return tiny_files.mnist_example([label], [image])


def pair(*labels):
    images = tiny_files.random_images(3, 6, 5, 1)
    return tiny_files.mnist_example(labels, images)


@pytest.mark.parametrize("keys", [SINGLE, PAIR])
def test_records_of_several_files_are_read_in_any_order(tmp_path, keys):
    num_labels, num_images = map(len, keys)
    images = tiny_files.random_images(7, num_images, 6, 5, 1)
    labels = np.stack([np.arange(7), 9 - np.arange(7)])[:num_labels]
    encoded = list(map(tiny_files.mnist_example, labels.T.tolist(), images))
    paths = [tmp_path / f"shard{number}" for number in range(3)]
    for path, start, stop in zip(paths, (0, 1, 4), (1, 4, 7), strict=True):
        tiny_files.write_records(path, encoded[start:stop])
    files = RecordFiles(paths, *keys, 10)
    assert len(files) == 7
    assert files.shape == (6, 5, 1)
    for indices in ([0], [6, 0, 3, 1, 4, 0], list(range(7))):
        read_labels, read_images = files.read(np.array(indices))
        expected = labels.T[indices], images[indices]
        if keys is SINGLE:
            expected = labels[0, indices], images[indices, 0]
        np.testing.assert_array_equal(read_labels, expected[0])
        np.testing.assert_array_equal(read_images, expected[1])


# In the length, its checksum, the record and its checksum.
@pytest.mark.parametrize("place", [0, 9, 40, -1])
def test_a_flipped_bit_is_found(tmp_path, place):
    contents = [single(label) for label in range(3)]
    path = tiny_files.write_records(tmp_path / "x.tfrecords", contents)
    content = bytearray(path.read_bytes())
    frame = len(contents[0]) + FRAME_OVERHEAD
    content[frame + place % frame] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match="x.tfrecords.*1"):
        RecordFiles([path], *SINGLE, 10).read(np.arange(3))


def test_a_file_of_other_records_is_found(tmp_path):
    path = tiny_files.write_records(tmp_path / "x.tfrecords", [single(1)])
    files, before = RecordFiles([path], *SINGLE, 10), path.stat()
    tiny_files.write_records(path, [single(2)])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(UserError, match=r"x\.tfrecords was changed"):
        files.read([0])


@pytest.mark.parametrize(
    ("keys", "contents"),
    [
        (SINGLE, [single(1), single(2, shape=(6, 6, 1))]),
        # As many bytes, but another shape.
        (SINGLE, [single(1), single(2, shape=(5, 6, 1))]),
        *((SINGLE, [single(10)]), (PAIR, [single(1)])),
        *((PAIR, [pair(3, 3)]), (PAIR, [pair(1, 10)])),
    ],
)
def test_unsuitable_records_are_found(tmp_path, keys, contents):
    path = tiny_files.write_records(tmp_path / "x.tfrecords", contents)
    with pytest.raises(UserError, match="x.tfrecords"):
        RecordFiles([path], *keys, 10).read(np.arange(len(contents)))


@pytest.mark.parametrize("size", [None, 0, 9, 150])
def test_missing_and_truncated_shards_are_found(tmp_path, size):
    paths = tmp_path / "first", tmp_path / "second"
    for path in paths:
        tiny_files.write_records(path, [single(1), single(2)])
    if size is None:
        path.unlink()
    else:
        os.truncate(path, size)
    with pytest.raises(UserError, match="second"):
        RecordFiles(paths, *SINGLE, 10)
