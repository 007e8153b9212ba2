import collections
import pathlib

import numpy as np
import pytest

from common.errors import UserError
from config import Config
from input_data import features as keys
from input_data import registry
from input_data.datasets.image_folder import divide
from input_data.registry import Split
from testing.tiny_files import random_images, write_png


def write_classes(root, counts):
    """Folders with that many images; the pixels of image n are all n."""
    value = 0
    for name, count in counts.items():
        for _ in range(count):
            value += 1
            image = np.full((6, 6, 1), value, np.uint8)
            write_png(root / name / f"{value:03d}.png", image)


def load(root, split=Split.TRAIN, **settings):
    config = Config(data_dir=str(root), **settings)
    return registry.load("images", split, config)


def contents(pipeline):
    """The (value, label) of every image, sorted."""
    ((x, _),) = pipeline.evaluation_batches(1000)
    values = np.rint(x[keys.IMAGES][:, 0, 0, 0] * 255).astype(int)
    return sorted(zip(values, x[keys.RECONS_LABEL], strict=True))


def test_classes_are_sorted_and_the_split_is_stratified(tmp_path):
    write_classes(tmp_path, {"zebra": 100, "ant": 80, "owl": 2})
    train, test = contents(load(tmp_path)), contents(load(tmp_path, Split.TEST))
    labels = [2] * 100 + [0] * 80 + [1] * 2
    assert sorted(train + test) == list(enumerate(labels, start=1))
    held_out = contents(load(tmp_path, Split.VALID_TEST))
    kept = contents(load(tmp_path, Split.VALID_TRAIN))
    assert sorted(kept + held_out) == train
    counts = collections.Counter(label for _, label in test)
    # A fifth of each on average, with deviations of 4 and 3.6; of two one.
    assert abs(counts[2] - 20) <= 3 * 4
    assert abs(counts[0] - 16) <= 3 * 3.6
    assert counts[1] == 1


def paths_of(count, name="image"):
    return [
        (pathlib.Path(f"/data/{label}/{name}{number}.png"), label)
        for label in "ab"
        for number in range(count)
    ]


@pytest.mark.parametrize(
    ("count", "seed", "purpose", "expected", "fingerprint"),
    [
        (10, 0, "test", "a9 a6 b5 b3", "e3b0c44298fc1c14"),
        (10, 1, "test", "a5 a1 b6", "e3b0c44298fc1c14"),
        (2, 0, "validation", "a0 b0", "dd5ba9b7daa88bd8"),
    ],
)
def test_checkpoints_of_earlier_versions_have_the_same_split(
    count, seed, purpose, expected, fingerprint
):
    files = paths_of(count)
    kept, held_out, digest = divide(files, seed, purpose)
    names = [f"{label}{path.stem[-1]}" for path, label in held_out]
    assert names == expected.split()
    assert digest == fingerprint
    assert sorted(kept + held_out) == files


def test_added_or_removed_files_move_no_others():
    files = paths_of(60)
    for seed in range(5):
        kept, held_out, digest = divide(files, seed, "test")
        for others in (files[7:], files + paths_of(40, "new")):
            now_kept, now_held_out, now = divide(others, seed, "test")
            assert now == digest
            assert not set(kept) & set(now_held_out)
            assert not set(held_out) & set(now_kept)


def test_the_fingerprint_shows_moved_files():
    changes = {True: 0, False: 0}
    for seed in range(300):
        kept, _, digest = divide(paths_of(3), seed, "test")
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


def test_hidden_and_other_files_are_ignored(tmp_path):
    write_classes(tmp_path, {"a": 3, "b": 3})
    (tmp_path / ".cache").mkdir()
    for name in ("labels.csv", "a/.DS_Store", "a/Thumbs.db", "b/.hidden.png"):
        (tmp_path / name).write_text("no image")
    # The content decides on the format.
    (tmp_path / "a" / "001.png").rename(tmp_path / "a" / "001.JPG")
    train, test = contents(load(tmp_path)), contents(load(tmp_path, Split.TEST))
    assert len(train + test) == 6


@pytest.mark.parametrize("color", [True, False])
def test_size_and_color(tmp_path, color):
    # Images of several sizes, some gray and some color.
    for part in ("train", "test"):
        for name, shape in (("a", (64, 96, 1)), ("b", (80, 64, 3))):
            image = random_images(1, *shape)[0] // 8
            image[:, shape[1] // 2 :] += 200
            write_png(tmp_path / part / name / "1.png", image)
    for split in Split.TRAIN, Split.TEST:
        pipeline = load(tmp_path, split, image_size=8, color=color)
        assert pipeline.spec.shape == keys.ImageShape(
            8, 8, 3 if color else 1, 2
        )
    ((x, _),) = pipeline.evaluation_batches(2)
    # Each pixel averages the noise below it.
    assert abs(x[keys.IMAGES][:, :, :3] * 255 - 15.5).max() < 8
    assert abs(x[keys.IMAGES][:, :, 5:] * 255 - 215.5).max() < 8
    with pytest.raises(UserError, match="--image_size"):
        pipeline = load(tmp_path)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({"a": 1, "b": 1}, "{}"),
        ({"one/a": 3, "one/b": 3}, "{}/one"),
        ({"train/a": 2, "train/b": 2, "test/c": 1}, "{}/test/c"),
    ],
)
def test_unsuitable_folders_are_named(tmp_path, counts, expected):
    write_classes(tmp_path, counts)
    with pytest.raises(UserError, match=expected.format(tmp_path)):
        load(tmp_path, Split.TEST)
