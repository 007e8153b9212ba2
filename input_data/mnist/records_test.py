import numpy as np
import pytest
import tensorflow as tf

from common.errors import UserError
from input_data.mnist import records
from input_data.splits import Split

SHAPE = (3, 2, 1)
IMAGE = bytes(range(6))


def feature(value):
    if isinstance(value, bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
    if isinstance(value, float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=[value]))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))


def example(**values):
    return tf.train.Example(
        features=tf.train.Features(
            feature={key: feature(value) for key, value in values.items()}
        )
    ).SerializeToString()


def single(**changes):
    values = {
        "height": 3,
        "width": 2,
        "depth": 1,
        "label": 7,
        "image_raw": IMAGE,
        **changes,
    }
    return example(
        **{key: value for key, value in values.items() if value is not None}
    )


def pair(**changes):
    values = {
        "height": 3,
        "width": 2,
        "depth": 1,
        "label_1": 7,
        "label_2": 0,
        "image_raw_1": IMAGE,
        "image_raw_2": IMAGE[::-1],
        "merged_raw": b"\5" * 6,
        **changes,
    }
    return example(**values)


def locate(place):
    return "some.tfrecords", 10 + place


def test_names():
    assert [records.single_name(split, 2) for split in Split] == [
        "train_2shifted_mnist.tfrecords",
        "test_2shifted_mnist.tfrecords",
        "train_2shifted_mnist_valid.tfrecords",
        "test_2shifted_mnist_valid.tfrecords",
    ]
    assert records.single_names(Split.TRAIN, 6) == [
        "train_6shifted_mnist.tfrecords"
    ]
    assert records.single_names(Split.VALID_TRAIN, 2) == [
        "train_2shifted_mnist_valid.tfrecords",
        "valid_train_2shifted_mnist.tfrecords",
    ]
    assert records.single_names(Split.VALID_TEST, 0) == [
        "test_0shifted_mnist_valid.tfrecords",
        "valid_test_0shifted_mnist.tfrecords",
    ]
    assert (
        records.shard_name(records.pairs_name(Split.TRAIN, 4), 3, 12)
        == "multitrain_4shifted_mnist.tfrecords-00003-of-00012"
    )


def test_shard_paths(tmp_path):
    assert records.names_shards("folder/some.tfrecords@10")
    assert not records.names_shards("user@host/folder")
    (tmp_path / "folder@10").mkdir()
    assert not records.names_shards(tmp_path / "folder@10")
    for shard in (0, 2):
        (tmp_path / f"a.tfrecords-0000{shard}-of-00004").touch()
    (tmp_path / "a.tfrecords-00000-of-00001").touch()
    with pytest.raises(UserError) as error:
        records.shard_paths(f"{tmp_path}/a.tfrecords@4")
    assert "2 of 4 files are missing" in str(error.value)
    assert "a.tfrecords-00001-of-00004, a.tfrecords-00003-of-00004" in str(
        error.value
    )
    assert f"there is {tmp_path}/a.tfrecords@1" in str(error.value)
    assert records.shard_paths(f"{tmp_path}/a.tfrecords@1") == [
        tmp_path / "a.tfrecords-00000-of-00001"
    ]
    with pytest.raises(UserError, match="names no files"):
        records.shard_paths(f"{tmp_path}/a.tfrecords@0")


def test_encoder_writes_the_reference_keys_and_types():
    images = np.random.default_rng(0).integers(
        0, 256, (3, 2, *SHAPE), dtype=np.uint8
    )
    rows = records.Encoder(records.PAIR, SHAPE).encode(
        [np.array([7, 9]), np.array([0, 3])], images
    )
    for place, labels in enumerate([(7, 0), (9, 3)]):
        raw = [image[place].tobytes() for image in images]
        expected = pair(
            label_1=labels[0],
            label_2=labels[1],
            image_raw_1=raw[0],
            image_raw_2=raw[1],
            merged_raw=raw[2],
        )
        written = tf.train.Example.FromString(rows[place].tobytes())
        assert written == tf.train.Example.FromString(expected)
        assert len(rows[place]) == len(expected)
    rows = records.Encoder(records.SINGLE, SHAPE).encode([[5]], [images[0, :1]])
    assert tf.train.Example.FromString(
        rows[0].tobytes()
    ) == tf.train.Example.FromString(
        single(label=5, image_raw=images[0, 0].tobytes())
    )


def test_parse():
    assert records.image_shape(single(), records.SINGLE, "path") == SHAPE
    labels, images = records.parse(
        [pair(), pair(label_1=3, merged_raw=IMAGE)], records.PAIR, SHAPE, locate
    )
    assert labels.tolist() == [[7, 3], [0, 0]]
    expected = [[IMAGE] * 2, [IMAGE[::-1]] * 2, [b"\5" * 6, IMAGE]]
    assert images.shape == (3, 2, *SHAPE)
    assert [[one.tobytes() for one in part] for part in images] == expected


FAULTS = [
    (records.SINGLE, b"\xff" * 9, "is not a tf.train.Example"),
    (
        records.SINGLE,
        single(label=None, height=None),
        "lacks height, label; it has depth, image_raw, width",
    ),
    (records.SINGLE, b"", "it has nothing"),
    (records.SINGLE, single(label=1.0), "no single int64 value for label"),
    (
        records.SINGLE,
        single(image_raw=1),
        "no single bytes value for image_raw",
    ),
    (
        records.SINGLE,
        single(image_raw=IMAGE[1:]),
        "5 bytes in image_raw, expected 3x2x1 = 6",
    ),
    (records.SINGLE, single(label=10), "the label 10: labels are 0 to 9"),
    (records.SINGLE, single(label=-1), "the label -1: labels are 0 to 9"),
    (records.PAIR, single(), "lacks label_1, label_2, image_raw_1"),
    (records.PAIR, pair(label_2=7), "the label 7 twice"),
    (
        records.PAIR,
        pair(merged_raw=b""),
        "0 bytes in merged_raw, expected 3x2x1 = 6",
    ),
]


@pytest.mark.parametrize(("layout", "record", "message"), FAULTS)
def test_faults_are_named(layout, record, message):
    good = single() if layout is records.SINGLE else pair()
    with pytest.raises(UserError, match=message) as error:
        records.parse([good, record], layout, SHAPE, locate)
    assert str(error.value).startswith("some.tfrecords: record 11 ")
    with pytest.raises(UserError, match=message) as error:
        records.image_shape(record, layout, "some.tfrecords")
    assert str(error.value).startswith("some.tfrecords: record 0 ")


def test_other_image_size():
    with pytest.raises(UserError, match="an image of 2x3x1, but the first"):
        records.parse(
            [single(height=2, width=3)], records.SINGLE, SHAPE, locate
        )
    with pytest.raises(UserError, match="an image of size 0x2x1"):
        records.image_shape(single(height=0), records.SINGLE, "path")
