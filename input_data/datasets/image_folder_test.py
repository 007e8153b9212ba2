import base64
import collections
import gzip
import itertools

import numpy as np
import pytest
import tensorflow as tf

from common.errors import UserError
from input_data import features as keys
from input_data.datasets import image_folder
from input_data.registry import Options
from input_data.splits import Split
from testing.tiny_files import random_images, write_png

# Written by Pillow: grey 4x6 with the values 0, 10, ... 230; and the same as
# red, halved as green, and 255 less it as blue.
GIF = base64.b64decode(
    "R0lGODdhBgAEAIQAAAAAAAoKChQUFB4eHigoKDIyMjw8PEZGRlBQUFpaWmRkZG5ubnh4eI"
    "KCgoyMjJaWlqCgoKqqqrS0tL6+vsjIyNLS0tzc3Obm5gAAAAAAAAAAAAAAAAAAAAAAAAAA"
    "AAAAACwAAAAABgAEAAAIHgABBBAwgEABAwcQJFCwgEEDBw8gRJAwgUIFCxcCAgA7"
)
BMP = base64.b64decode(
    "Qk2GAAAAAAAAADYAAAAoAAAABgAAAAQAAAABABgAAAAAAFAAAADEDgAAxA4AAAAAAAAAAA"
    "AAS1q0QV++N2TILWnSI27cGXPmAACHPHh9QYJzRoxpS5ZfUKBVVaoAAMMePLkjRq8oUKUt"
    "WpsyZJE3bgAA/wAA9QUK6woU4Q8e1xQozRkyAAA="
)
RAMP = (np.arange(24, dtype=np.uint8) * 10).reshape(4, 6)
RAMP_COLOURS = np.stack([RAMP, RAMP // 2, 255 - RAMP], axis=-1)


def write_classes(root, counts, shape=(6, 6, 1)):
    """Folders named by the keys of `counts`, with that many PNG images.

    Every pixel of an image is a number of its own, so that it can be known.
    """
    number = itertools.count(1)
    for name, count in counts.items():
        for _ in range(count):
            value = next(number)
            image = np.full(shape, value, np.uint8)
            write_png(root / name / f"{value:03d}.png", image)


def load(root, split=Split.TRAIN, **options):
    return image_folder.load(split, Options(data_dir=root, **options))


def contents(pipeline):
    """(value, label) of every image, sorted; each image has one value."""
    found = []
    for x, _ in pipeline.evaluation_batches(7):
        values = np.rint(x[keys.IMAGES][:, 0, 0, 0] * 255).astype(int)
        labels = x[keys.RECONS_LABEL]
        found += zip(values.tolist(), labels.tolist(), strict=True)
    return sorted(found)


def read_one(tmp_path, content, name="x.png", **options):
    """What becomes of one file: the image as uint8."""
    for number, folder in enumerate(("train/a", "train/b", "test/a")):
        (tmp_path / folder).mkdir(parents=True)
        file_name = name if folder == "test/a" else f"{number}.{name}"
        (tmp_path / folder / file_name).write_bytes(content)
    pipeline = load(tmp_path, Split.TEST, **options)
    ((x, _),) = pipeline.evaluation_batches(1)
    return np.rint(x[keys.IMAGES][0] * 255).astype(np.uint8)


def test_classes_are_the_sorted_names_and_the_split_is_stratified(tmp_path):
    write_classes(tmp_path, {"zebra": 10, "ant": 21, "owl": 2})
    train = contents(load(tmp_path))
    test = contents(load(tmp_path, Split.TEST))
    # Values 1 to 10 are zebras (class 2), 11 to 31 ants (0), 32, 33 owls (1).
    expected = [
        (v, 2 if v <= 10 else 0 if v <= 31 else 1) for v in range(1, 34)
    ]
    assert sorted(train + test) == expected
    assert collections.Counter(label for _, label in test) == {2: 2, 0: 4, 1: 1}


def test_the_seed_fixes_the_split(tmp_path):
    write_classes(tmp_path, {"a": 20, "b": 20})
    tests = [contents(load(tmp_path, Split.TEST, seed=s)) for s in (1, 1, 2)]
    assert tests[0] == tests[1] != tests[2]
    assert load(tmp_path, seed=2).spec.split_seed == 2


def test_validation_divides_the_training_images(tmp_path):
    write_classes(tmp_path, {"a": 20, "b": 10})
    parts = {split: contents(load(tmp_path, split)) for split in Split}
    divided = parts[Split.VALID_TRAIN] + parts[Split.VALID_TEST]
    assert sorted(divided) == parts[Split.TRAIN]
    labels = [label for _, label in parts[Split.VALID_TEST]]
    assert collections.Counter(labels) == {0: 3, 1: 1}


def test_folders_train_and_test_are_the_split(tmp_path):
    write_classes(tmp_path, {"train/b": 3, "train/a": 2, "test/b": 2})
    assert contents(load(tmp_path)) == [(1, 1), (2, 1), (3, 1), (4, 0), (5, 0)]
    assert contents(load(tmp_path, Split.TEST)) == [(6, 1), (7, 1)]
    assert load(tmp_path).spec.split_seed is None
    assert load(tmp_path, Split.VALID_TRAIN, seed=4).spec.split_seed == 4


def test_a_first_part_of_the_evaluation_has_all_classes(tmp_path):
    counts = {f"test/{name}": 30 for name in "abc"}
    write_classes(
        tmp_path, {"train/a": 1, "train/b": 1, "train/c": 1, **counts}
    )
    part = contents(load(tmp_path, Split.TEST, eval_size=15))
    assert {label for _, label in part} == {0, 1, 2}


def test_hidden_files_and_files_beside_the_classes_are_left_out(tmp_path):
    write_classes(tmp_path, {"a": 3, "b": 3})
    (tmp_path / "labels.csv").write_text("no image")
    (tmp_path / "a" / ".DS_Store").write_text("no image")
    (tmp_path / ".cache").mkdir()
    assert load(tmp_path).spec.shape.num_classes == 2


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (tf.io.encode_png(RAMP[..., None]).numpy(), "x.png"),
        (GIF, "x.gif"),
        (tf.io.encode_png(RAMP[..., None]).numpy(), "wrong_suffix.jpg"),
    ],
)
def test_grey_images(tmp_path, content, name):
    image = read_one(tmp_path, content, name)
    np.testing.assert_array_equal(image[..., 0], RAMP)


@pytest.mark.parametrize(
    "content", [tf.io.encode_png(RAMP_COLOURS).numpy(), BMP]
)
def test_coloured_images_keep_colours_or_become_grey(tmp_path, content):
    coloured = read_one(tmp_path / "c", content, color=True)
    np.testing.assert_array_equal(coloured, RAMP_COLOURS)
    grey = read_one(tmp_path / "g", content)
    red, green, blue = np.moveaxis(RAMP_COLOURS.astype(float), -1, 0)
    expected = 0.2989 * red + 0.587 * green + 0.114 * blue
    np.testing.assert_allclose(grey[..., 0], expected, atol=0.51)


def test_jpeg(tmp_path):
    smooth = np.tile(np.arange(64, dtype=np.uint8) * 4, (64, 1))
    content = tf.io.encode_jpeg(smooth[..., None], quality=100).numpy()
    image = read_one(tmp_path, content, "x.jpeg")
    np.testing.assert_allclose(image[..., 0], smooth, atol=3)


def test_grey_images_among_coloured_ones(tmp_path):
    content = tf.io.encode_png(RAMP[..., None]).numpy()
    image = read_one(tmp_path, content, color=True)
    np.testing.assert_array_equal(image, np.repeat(RAMP[..., None], 3, 2))


def test_transparent_pixels_become_black(tmp_path):
    opaque = np.full((4, 6), 255, np.uint8)
    opaque[:2] = 0
    image = np.dstack([RAMP_COLOURS, opaque])
    found = read_one(tmp_path, tf.io.encode_png(image).numpy(), color=True)
    np.testing.assert_array_equal(found[:2], np.zeros((2, 6, 3)))
    np.testing.assert_array_equal(found[2:], RAMP_COLOURS[2:])


def test_image_size_averages_over_what_it_shrinks(tmp_path):
    image = random_images(1, 64, 96, 1)[0] // 8
    image[:, 48:] += 200
    content = tf.io.encode_png(image).numpy()
    found = read_one(tmp_path, content, image_size=8)
    assert found.shape == (8, 8, 1)
    assert abs(found[:, :3].astype(float) - 15.5).max() < 6
    assert abs(found[:, 5:].astype(float) - 215.5).max() < 6


def test_two_targets(tmp_path):
    write_classes(tmp_path, {"a": 4, "b": 3}, shape=(10, 10, 3))
    pipeline = load(tmp_path, num_targets=2, color=True)
    ((x, y),) = pipeline.training_batches(20, 0, 0, 1)
    assert x[keys.IMAGES].shape == (20, 18, 18, 3)
    merged = np.minimum(y[keys.RECONS] + y[keys.SPARE_RECONS], 1)
    np.testing.assert_allclose(x[keys.IMAGES], merged, atol=1e-6)


def test_two_targets_of_one_class_are_refused(tmp_path):
    write_classes(tmp_path, {"train/a": 2, "train/b": 2, "test/a": 2})
    with pytest.raises(UserError, match="at least two classes"):
        load(tmp_path, Split.TEST, num_targets=2)


PNG = tf.io.encode_png(random_images(1, 30, 30, 3)[0]).numpy()
JPEG = tf.io.encode_jpeg(random_images(1, 30, 30, 3)[0]).numpy()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no image at all",
        PNG[: len(PNG) // 2],
        JPEG[: len(JPEG) // 2],
        BMP[: len(BMP) // 2],
        GIF[: len(GIF) // 2],
        PNG[:12] + b"XXXX" + PNG[16:],
        PNG[:200] + bytes([PNG[200] ^ 255]) + PNG[201:],
        gzip.compress(PNG),
    ],
)
def test_a_file_that_is_not_a_sound_image_is_named(tmp_path, content):
    write_classes(tmp_path, {"train/a": 1, "train/b": 2, "test/a": 1})
    path = tmp_path / "train" / "b" / "002.png"
    path.write_bytes(content)
    with pytest.raises(UserError) as error:
        load(tmp_path, image_size=20)
    message = str(error.value)
    assert message.startswith(f"{path} is not a sound PNG, JPEG")
    assert "Op:" not in message
    assert "function_node" not in message


def test_images_of_two_sizes_need_image_size(tmp_path):
    write_classes(tmp_path, {"a": 3})
    write_png(tmp_path / "b" / "wide.png", np.zeros((6, 9, 1), np.uint8))
    with pytest.raises(UserError, match=r"6x9.*--image_size"):
        load(tmp_path)
    assert load(tmp_path, image_size=5).spec.shape.width == 5


def test_folders_that_make_no_data_set_are_named(tmp_path):
    with pytest.raises(UserError, match="--data_dir"):
        image_folder.load(Split.TRAIN, Options())
    write_classes(tmp_path, {"one": 1})
    with pytest.raises(UserError, match=r"two or more; it has: one"):
        load(tmp_path)
    (tmp_path / "two").mkdir()
    with pytest.raises(UserError, match=f"{tmp_path / 'two'} is empty"):
        load(tmp_path)
    (tmp_path / "two" / "three").mkdir()
    with pytest.raises(UserError, match="three is a folder"):
        load(tmp_path)


def test_one_image_of_each_class_cannot_be_split(tmp_path):
    write_classes(tmp_path, {"a": 1, "b": 1})
    with pytest.raises(UserError, match="one training image of each class"):
        load(tmp_path)


def test_a_test_class_that_training_lacks_is_named(tmp_path):
    write_classes(tmp_path, {"train/a": 1, "train/b": 1, "test/c": 1})
    with pytest.raises(UserError, match=r"test/c has no counterpart.*a, b"):
        load(tmp_path, Split.TEST)
