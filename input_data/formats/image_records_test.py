import numpy as np
import pytest
import tensorflow as tf

from input_data.formats import image_records
from input_data.formats.mnist_records import PAIR, SINGLE
from old.errors import UserError
from testing.tiny_files import write_records

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


def read(folder, layout, *records):
    """The shape, and what is read of a file with these records."""
    path = folder / "some.tfrecords"
    write_records(path, records)
    found = image_records.ImageRecords([path], layout)
    return found.shape, *found.read(np.arange(len(records)))


def test_encoder_writes_the_reference_keys_and_types():
    images = np.random.default_rng(0).integers(
        0, 256, (3, 2, *SHAPE), dtype=np.uint8
    )
    rows = image_records.Encoder(PAIR, SHAPE).encode(
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
    rows = image_records.Encoder(SINGLE, SHAPE).encode([[5]], [images[0, :1]])
    assert tf.train.Example.FromString(
        rows[0].tobytes()
    ) == tf.train.Example.FromString(
        single(label=5, image_raw=images[0, 0].tobytes())
    )


def test_what_is_read(tmp_path):
    shape, labels, images = read(
        tmp_path, PAIR, pair(), pair(label_1=3, merged_raw=IMAGE)
    )
    assert shape == SHAPE
    assert labels.tolist() == [[7, 3], [0, 0]]
    expected = [[IMAGE] * 2, [IMAGE[::-1]] * 2, [b"\5" * 6, IMAGE]]
    assert images.shape == (3, 2, *SHAPE)
    assert [[one.tobytes() for one in part] for part in images] == expected


FAULTS = [
    (SINGLE, b"\xff" * 9, "is not a tf.train.Example"),
    (
        SINGLE,
        single(label=None, height=None),
        "lacks height, label; it has depth, image_raw, width",
    ),
    (SINGLE, b"", "it has nothing"),
    (SINGLE, single(label=1.0), "no single int64 value for label"),
    (
        SINGLE,
        single(image_raw=1),
        "no single bytes value for image_raw",
    ),
    (
        SINGLE,
        single(image_raw=IMAGE[1:]),
        "5 bytes in image_raw, expected 3x2x1 = 6",
    ),
    (SINGLE, single(label=10), "the label 10: labels are 0 to 9"),
    (SINGLE, single(label=-1), "the label -1: labels are 0 to 9"),
    (PAIR, single(), "lacks label_1, label_2, image_raw_1"),
    (PAIR, pair(label_2=7), "the label 7 twice"),
    (
        PAIR,
        pair(merged_raw=b""),
        "0 bytes in merged_raw, expected 3x2x1 = 6",
    ),
]


@pytest.mark.parametrize(("layout", "record", "message"), FAULTS)
def test_faults_are_named(tmp_path, layout, record, message):
    with pytest.raises(UserError, match=message) as error:
        read(tmp_path, layout, record)
    name = tmp_path / "some.tfrecords"
    assert str(error.value).startswith(f"{name}: record 0 ")


def test_sizes_beyond_all_images(tmp_path):
    record = single(height=2**63 - 1, width=2**62)
    with pytest.raises(UserError, match="has 6 bytes in image_raw, expected"):
        read(tmp_path, SINGLE, record)


def test_other_image_size(tmp_path):
    other = single(height=2, width=3)
    message = "record 1 has an image of 2x3x1, but the first one is of 3x2x1"
    with pytest.raises(UserError, match=message):
        read(tmp_path, SINGLE, single(), other)
    with pytest.raises(UserError, match="an image of size 0x2x1"):
        read(tmp_path, SINGLE, single(height=0))
