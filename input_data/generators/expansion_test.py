import numpy as np
import pytest
import tensorflow as tf

from input_data import memory
from input_data.generators.expansion import DigitPairs, ShiftedDigits
from input_data.images import LabelledImages
from input_data.splits import Split
from old.errors import UserError


def some_images(count=23, size=7, seed=0):
    """Noise in the middle 3x3 pixels: a shift of 2 loses nothing."""
    generator = np.random.default_rng(seed)
    images = np.zeros((count, size, size, 1), np.uint8)
    images[:, 2:-2, 2:-2] = generator.integers(1, 256, (count, 3, 3, 1))
    return LabelledImages(images, generator.integers(0, 4, count), 10)


def parse_rows(rows):
    return [
        tf.train.Example.FromString(row.tobytes()).features.feature
        for row in rows
    ]


def shifted(image, row, column, pad):
    """The image, padded, then moved; what comes in is black."""
    canvas = np.pad(image, pad + 9)
    canvas = np.roll(canvas, (row, column), axis=(0, 1))
    return canvas[9:-9, 9:-9]


def test_single_digits_at_all_offsets_in_the_reference_order():
    data = some_images(3)
    contents = ShiftedDigits(data, shift=2, pad=1)
    assert contents.num_records == 75
    examples = iter(parse_rows(contents.encode(0, 75)))
    for image, label in zip(data.images[..., 0], data.labels, strict=True):
        for row in range(-2, 3):
            for column in range(-2, 3):
                values = next(examples)
                assert (
                    values["image_raw"].bytes_list.value[0]
                    == shifted(image, row, column, pad=1).tobytes()
                )
                assert values["label"].int64_list.value[0] == label
                sizes = [
                    values[key].int64_list.value[0]
                    for key in ("height", "width", "depth")
                ]
                assert sizes == [9, 9, 1]


def test_pairs_are_exact_in_number_and_different_in_class():
    data = some_images(23)
    contents = DigitPairs(data, 2, 1, 40, 5, Split.TEST)
    assert contents.num_records == 23 * 40
    place = {
        image.tobytes(): number
        for number, image in enumerate(data.images[:, 2:-2, 2:-2])
    }
    firsts = np.zeros(23, int)
    seconds = np.zeros(23, int)
    offsets = np.zeros((2, 5, 5), int)
    for values in parse_rows(contents.encode(0, contents.num_records)):
        images, found = [], []
        for target in (1, 2):
            raw = values[f"image_raw_{target}"].bytes_list.value[0]
            image = np.frombuffer(raw, np.uint8).reshape(9, 9)
            images.append(image)
            row, column = np.argwhere(image).min(axis=0)
            digit = image[row : row + 3, column : column + 3]
            assert digit.sum() == image.sum()
            found.append(place[digit.tobytes()])
            offsets[target - 1, row - 1, column - 1] += 1
            label = values[f"label_{target}"].int64_list.value[0]
            assert label == data.labels[found[-1]]
        assert data.labels[found[0]] != data.labels[found[1]]
        merged = np.minimum(images[0].astype(int) + images[1], 255)
        raw = values["merged_raw"].bytes_list.value[0]
        assert raw == merged.astype(np.uint8).tobytes()
        firsts[found[0]] += 1
        seconds[found[1]] += 1
    assert (firsts == 40).all()
    # Each other image is as likely: 40 on average, by the sizes of classes.
    counts = np.bincount(data.labels)
    expected = sum(
        40 * count / (23 - count) * (data.labels != label)
        for label, count in enumerate(counts)
    )
    assert (np.abs(seconds - expected) < 5 * np.sqrt(expected)).all()
    mean = 23 * 40 / 25
    assert np.abs(offsets - mean).max() < 5 * np.sqrt(mean)


def test_a_record_depends_on_seed_and_number_alone():
    data = some_images()
    settings = {"shift": 1, "pad": 1, "num_pairs": 9}
    settings |= {"seed": 5, "split": Split.TEST}
    rows = DigitPairs(data, **settings).encode(0, 200)
    np.testing.assert_array_equal(
        DigitPairs(data, **settings).encode(61, 67), rows[61:67]
    )
    for changes in ({"seed": 6}, {"split": Split.TRAIN}):
        other = DigitPairs(data, **{**settings, **changes})
        assert (other.encode(0, 200) != rows).any()


def test_what_images_move_into_counts_as_memory(monkeypatch):
    size = 23 * (7 + 2 * (3 + 2)) ** 2
    monkeypatch.setattr(memory, "available", lambda: size)
    ShiftedDigits(some_images(23), shift=2, pad=3)
    monkeypatch.setattr(memory, "available", lambda: size - 1)
    message = "images of 13x13, by --pad=3, takes .*choose less"
    with pytest.raises(UserError, match=message):
        ShiftedDigits(some_images(23), shift=2, pad=3)
