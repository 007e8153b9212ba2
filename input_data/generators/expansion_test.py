import dataclasses

import numpy as np
import scipy.ndimage
import tensorflow as tf

from input_data.generators.expansion import DigitPairs, ShiftedDigits
from input_data.generators.job import Job
from input_data.images import LabelledImages
from input_data.registry import Split

JOB = Job(split="test", shift=2, pad=1, num_pairs=40, seed=5)


def some_images(count=23, size=7):
    """Noise in the middle 3x3 pixels: a shift of 2 loses nothing."""
    generator = np.random.default_rng(0)
    images = np.zeros((count, size, size, 1), np.uint8)
    images[:, 2:-2, 2:-2] = generator.integers(1, 256, (count, 3, 3, 1))
    return LabelledImages(images, generator.integers(0, 4, count), 10)


def parse(records):
    """Dicts of the values of records."""
    for record in records:
        features = tf.train.Example.FromString(record).features.feature
        yield {
            key: (feature.int64_list.value or feature.bytes_list.value)[0]
            for key, feature in features.items()
        }


def test_single_digits_at_all_offsets_in_the_reference_order():
    data = some_images(3)
    contents = ShiftedDigits(data, JOB)
    assert contents.num_records == 75
    examples = parse(contents.records(0, 75))
    for image, label in zip(data.images[..., 0], data.labels, strict=True):
        for row in range(-2, 3):
            for column in range(-2, 3):
                shifted = scipy.ndimage.shift(
                    np.pad(image, 1), (row, column), order=0
                )
                assert next(examples) == {
                    "height": 9,
                    "width": 9,
                    "depth": 1,
                    "label": label,
                    "image_raw": shifted.tobytes(),
                }


def test_pairs_are_exact_in_number_and_different_in_class():
    data = some_images(23)
    contents = DigitPairs(data, JOB)
    assert contents.num_records == 23 * 40
    place = {
        image.tobytes(): number
        for number, image in enumerate(data.images[:, 2:-2, 2:-2])
    }
    firsts = np.zeros(23, int)
    seconds = np.zeros(23, int)
    offsets = np.zeros((2, 5, 5), int)
    for values in parse(contents.records(0, contents.num_records)):
        images, numbers = [], []
        for target in (1, 2):
            raw = values[f"image_raw_{target}"]
            image = np.frombuffer(raw, np.uint8).reshape(9, 9)
            images.append(image)
            row, column = np.argwhere(image).min(axis=0)
            digit = image[row : row + 3, column : column + 3]
            assert digit.sum() == image.sum()
            numbers.append(place[digit.tobytes()])
            offsets[target - 1, row - 1, column - 1] += 1
            assert values[f"label_{target}"] == data.labels[numbers[-1]]
        assert data.labels[numbers[0]] != data.labels[numbers[1]]
        merged = np.minimum(images[0].astype(int) + images[1], 255)
        assert values["merged_raw"] == merged.astype(np.uint8).tobytes()
        firsts[numbers[0]] += 1
        seconds[numbers[1]] += 1
    assert (firsts == 40).all()
    # Each image of another class is as likely.
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
    records = list(DigitPairs(data, JOB).records(0, 700))
    assert list(DigitPairs(data, JOB).records(491, 530)) == records[491:530]
    for changes in ({"seed": 6}, {"split": Split.TRAIN.value}):
        job = dataclasses.replace(JOB, **changes)
        assert list(DigitPairs(data, job).records(0, 700)) != records
