import collections
import itertools
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from config import Config
from input_data import features as keys
from input_data.datasets import image_folder
from input_data.datasets.image_folder import divide
from input_data.registry import Split
from testing.tiny_files import random_images, write_png

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
    return image_folder.load(split, Config(data_dir=root, **options))


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
    write_classes(tmp_path, {"zebra": 100, "ant": 80, "owl": 2})
    train = contents(load(tmp_path))
    test = contents(load(tmp_path, Split.TEST))
    # Values 1 to 100 are zebras (class 2), to 180 ants (0), then owls (1).
    expected = [
        (v, 2 if v <= 100 else 0 if v <= 180 else 1) for v in range(1, 183)
    ]
    assert sorted(train + test) == expected
    counts = collections.Counter(label for _, label in test)
    # A fifth of each on average, deviations 4 and 3.6; of two exactly one.
    assert abs(counts[2] - 20) <= 3 * 4
    assert abs(counts[0] - 16) <= 3 * 3.6
    assert counts[1] == 1


def test_the_seed_fixes_the_split(tmp_path):
    write_classes(tmp_path, {"a": 20, "b": 20})
    tests = [contents(load(tmp_path, Split.TEST, seed=s)) for s in (1, 1, 2)]
    assert tests[0] == tests[1] != tests[2]
    assert load(tmp_path, seed=2).spec.split_seed == 2


def test_validation_divides_the_training_images(tmp_path):
    write_classes(tmp_path, {"a": 30, "b": 30})
    parts = {split: contents(load(tmp_path, split)) for split in Split}
    divided = parts[Split.VALID_TRAIN] + parts[Split.VALID_TEST]
    assert sorted(divided) == parts[Split.TRAIN]
    assert {label for _, label in parts[Split.VALID_TEST]} == {0, 1}


def paths_of(count, name="image"):
    return [
        (pathlib.Path(f"/data/{label}/{name}{number}.png"), label)
        for label in "ab"
        for number in range(count)
    ]


def test_added_or_removed_files_move_no_others():
    files = paths_of(60)
    for seed in range(5):
        kept, held_out, digest = divide(files, seed, "test")
        assert sorted(kept + held_out) == sorted(files)
        for others in (files[7:], files + paths_of(40, "new")):
            now_kept, now_held_out, same = divide(others, seed, "test")
            assert same == digest
            assert not set(kept) & set(now_held_out)
            assert not set(held_out) & set(now_kept)
    purposes = [divide(files, 0, p)[1] for p in ("test", "validation")]
    assert purposes[0] != purposes[1]


def test_the_fingerprint_shows_moved_files():
    changes = {True: 0, False: 0}
    for seed in range(300):
        kept, held_out, digest = divide(paths_of(3), seed, "test")
        for side in (kept, held_out):
            assert {label for _, label in side} == {"a", "b"}
        _, now_held_out, now = divide(paths_of(4), seed, "test")
        moved = bool(set(kept) & set(now_held_out))
        assert not moved or now != digest
        changes[moved] += 1
    assert min(changes.values()) > 0


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


@pytest.mark.parametrize("color", [True, False])
def test_grey_and_coloured_images_together(tmp_path, color):
    for name, image in (
        ("train/a", RAMP[..., None]),
        ("train/b", RAMP_COLOURS),
        ("test/a", RAMP_COLOURS),
    ):
        write_png(tmp_path / name / "1.png", image)
    for split in (Split.TRAIN, Split.TEST):
        depth = load(tmp_path, split, color=color).spec.shape.depth
        assert depth == (3 if color else 1)


def test_image_size_averages_over_what_it_shrinks(tmp_path):
    image = random_images(1, 64, 96, 1)[0] // 8
    image[:, 48:] += 200
    content = tf.io.encode_png(image).numpy()
    found = read_one(tmp_path, content, image_size=8)
    assert found.shape == (8, 8, 1)
    assert abs(found[:, :3].astype(float) - 15.5).max() < 6
    assert abs(found[:, 5:].astype(float) - 215.5).max() < 6
