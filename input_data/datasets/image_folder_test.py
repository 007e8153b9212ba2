import collections
import os
import pathlib
import re
import shutil
import unicodedata

import numpy as np
import pytest

from common.errors import UserError
from input_data import keys, stored
from input_data.datasets.image_folder import divide
from input_data.registry import Split
from testing import splits, tiny_files
from testing.tiny_files import random_images, write_png
from training.inference import preparation


def write_classes(root, counts):
    """Folders with that many images; the pixels of image n are all n."""
    names = [name for name in counts for _ in range(counts[name])]
    for value, name in enumerate(names, start=1):
        image = np.full((6, 6, 1), value, np.uint8)
        write_png(root / name / f"{value:03d}.png", image)


def load(root, split=Split.TRAIN, **settings):
    return splits.load("images", split, root, **settings)


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


ROOT = pathlib.Path("/data")


def paths_of(count, name="image"):
    names = [f"{name}{number}.png" for number in range(count)]
    return [(ROOT / label / name, label) for label in "ab" for name in names]


def test_the_split_is_the_same_in_all_versions():
    for count, seed, purpose, expected, fingerprint in (
        (10, 0, "test", "a9 a6 b5 b3", "e3b0c44298fc1c14"),
        (10, 1, "test", "a5 a1 b6", "e3b0c44298fc1c14"),
        (2, 0, "validation", "a0 b0", "dd5ba9b7daa88bd8"),
    ):
        files = paths_of(count)
        kept, held_out, digest = divide(files, seed, purpose, ROOT)
        names = [f"{label}{path.stem[-1]}" for path, label in held_out]
        assert (names, digest) == (expected.split(), fingerprint)
        assert sorted(kept + held_out) == files


def test_added_or_removed_files_move_no_others():
    files = paths_of(60)
    for seed in range(5):
        kept, held_out, digest = divide(files, seed, "test", ROOT)
        for others in (files[7:], files + paths_of(40, "new")):
            now_kept, now_held_out, now = divide(others, seed, "test", ROOT)
            assert now == digest
            assert not set(kept) & set(now_held_out)
            assert not set(held_out) & set(now_kept)


def test_the_fingerprint_shows_moved_files():
    changes = set()
    for seed in range(300):
        kept, _, digest = divide(paths_of(3), seed, "test", ROOT)
        _, now_held_out, now = divide(paths_of(4), seed, "test", ROOT)
        moved = bool(set(kept) & set(now_held_out))
        assert not moved or now != digest
        changes.add(moved)
    assert changes == {True, False}


@pytest.mark.parametrize(
    ("counts", "validation", "test"),
    [
        ({"test/b": 2}, None, [(6, 1), (7, 1)]),
        ({"Val/b": 1, "TEST/a": 1}, [(6, 1)], [(7, 0)]),
        ({"validation/b": 1}, [(6, 1)], [(6, 1)]),
    ],
)
def test_folders_of_parts_are_the_split(tmp_path, counts, validation, test):
    write_classes(tmp_path, {"Train/b": 3, "Train/a": 2, **counts})
    assert contents(load(tmp_path)) == [(1, 1), (2, 1), (3, 1), (4, 0), (5, 0)]
    assert contents(load(tmp_path, Split.TEST)) == test
    assert load(tmp_path).spec.split_seed is None
    kept = load(tmp_path, Split.VALID_TRAIN, seed=4)
    assert kept.spec.split_seed == (None if validation else 4)
    if validation:
        assert contents(load(tmp_path, Split.VALID_TEST)) == validation
        assert len(contents(kept)) == 5


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (("bus", "train"), ("bus", "train")),
        (("car", "test", "train"), ("car", "test", "train")),
        # Not UTF-8.
        (("Köse", "caf\udce9"), ("Köse", "caf?")),
        (("K?se", "K\udce4se"), ("K?se", r"K\udce4se")),
    ],
)
def test_names_of_classes(tmp_path, names, shown):
    write_classes(tmp_path, dict.fromkeys(names, 2))
    pipeline = load(tmp_path)
    assert pipeline.spec.class_names == shown
    assert {label for _, label in contents(pipeline)} == {*range(len(names))}


def test_held_out_images_are_counted(tmp_path, capsys):
    write_classes(tmp_path, {"one": 1, "a": 2, "rare9": 20})
    load(tmp_path, Split.TEST)
    counts, warning = capsys.readouterr().out.splitlines()
    assert counts == "Held out for test: a 1 of 2, one 0 of 1, rare9 1 of 20"
    assert " one, rare9: " in warning


def test_normal_forms_of_names_have_the_same_split(tmp_path):
    found = []
    for form in "NFC", "NFD":
        classes = {unicodedata.normalize(form, f"{c}pfel"): 20 for c in "Äö"}
        write_classes(tmp_path / form, classes)
        pipeline = load(tmp_path / form, Split.TEST)
        found.append((pipeline.spec, contents(pipeline)))
    assert found[0] == found[1]


def test_hidden_and_other_files_are_ignored(tmp_path, capsys):
    write_classes(tmp_path, {"a": 3, "b": 3})
    os.mkfifo(tmp_path / "a" / "pipe.png")
    names = ".cache/1.png __MACOSX/1.png notes.csv b/._001.png b/note.txt "
    names += "a/.DS_Store a/Thumbs.db a/1.SVG a/s/2/3.png a/s/4.svg a/.no/5.png"
    for name in names.split():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("no image")
    # The content decides on the format.
    (tmp_path / "a" / "001.png").rename(tmp_path / "a" / "001.JPG")
    train = contents(load(tmp_path))
    of_a, of_b, _ = capsys.readouterr().out.splitlines()
    assert of_a.endswith("/a: ignored 3 files: .db .svg; 1 in sub-folders")
    assert of_b == f"Warning: {tmp_path}/b: ignored 1 files: .txt"
    assert len(train + contents(load(tmp_path, Split.TEST))) == 6


def test_the_description_is_that_of_the_contents(tmp_path, monkeypatch):
    monkeypatch.setattr(stored, "MEMORY_BYTES", 0)
    write_classes(tmp_path / "one", {"a": 3, "b": 3})
    shutil.copytree(tmp_path / "one", tmp_path / "two")

    def description(folder="one", resize="pad", **settings):
        options = {"image_size": 8, "resize": resize, **settings}
        return load(tmp_path / folder, **options).description()

    before = description()
    assert description("two") == before
    changed = [description(resize=name) for name in ("crop", "stretch")]
    changed.append(description(color=True))
    for path in (tmp_path / "two").rglob("*.png"):
        tiny_files.DAMAGE["blacken"](path)
    changed.append(description("two"))
    assert len({before, *changed}) == 5


def test_links_to_nothing_and_to_devices_are_named(tmp_path):
    write_classes(tmp_path / "folders", {"cat": 5, "dog": 5})
    os.symlink("/not_mounted/bird", tmp_path / "folders" / "bird")
    with pytest.raises(UserError, match="bird"):
        load(tmp_path / "folders")
    write_labeled(tmp_path, ["cat", "dog"] * 5)
    for path in list(tmp_path.glob("*.png")):
        path.unlink()
        path.symlink_to("/dev/null")
    with pytest.raises(UserError, match=r"\.png is a pipe, socket or device"):
        load(tmp_path, image_size=8)


@pytest.mark.parametrize(
    ("color", "resize"), [(True, "stretch"), (False, None), (True, "crop")]
)
def test_size_and_color(tmp_path, color, resize):
    # Images of several sizes, some gray and some color.
    for part in ("train", "test"):
        for name, shape in (("a", (64, 96, 1)), ("b", (80, 64, 3))):
            image = random_images(1, *shape)[0] // 8
            image[:, shape[1] // 2 :] += 200
            write_png(tmp_path / part / name / "1.png", image)
    for split in Split.TRAIN, Split.TEST:
        settings = {"image_size": 8, "color": color, "resize": resize}
        pipeline = load(tmp_path, split, **settings)
        depth = 3 if color else 1
        assert pipeline.spec.shape == keys.ImageShape(8, 8, depth, 2)
    ((x, _),) = pipeline.evaluation_batches(2)
    rows = slice(2, 6) if resize is None else slice(None)
    # Each pixel averages the noise below it.
    assert abs(x[keys.IMAGES][:, rows, 2:3] * 255 - 15.5).max() < 8
    assert abs(x[keys.IMAGES][:, rows, 5:6] * 255 - 215.5).max() < 8
    # Predictions prepare single images in the same way.
    config = splits.resolved("images", tmp_path, **settings)
    prepare = preparation(config, pipeline.spec.shape)
    for label, image in zip(x[keys.RECONS_LABEL], x[keys.IMAGES], strict=True):
        path = tmp_path / "test" / "ab"[label] / "1.png"
        single = prepare(path.read_bytes(), path, False)
        np.testing.assert_array_equal(single, image)
    with pytest.raises(UserError, match="4 channels"):
        preparation(config, keys.ImageShape(8, 8, 4, 2))
    with pytest.raises(UserError, match="--image_size"):
        pipeline = load(tmp_path)


@pytest.mark.parametrize(
    ("counts", "place"),
    [
        *(({"a": 1, "b": 1}, ""), ({"one/a": 3, "one/b": 3}, "/one")),
        ({"train/a": 2, "train/b": 2, "test/c": 1}, "/test/c"),
        ({"train/a": 2, "train/b": 2, "test/A": 1}, "/test/A"),
        ({"train/a": 2, "train/b": 2, "test": 1}, "/test needs"),
    ],
)
def test_unsuitable_folders_are_named(tmp_path, counts, place):
    write_classes(tmp_path, counts)
    with pytest.raises(UserError, match=f"{tmp_path}{place}"):
        load(tmp_path, Split.TEST)


def write_labeled(root, cells, folder="", header="file,label"):
    """A folder whose image n has pixels n and is named n.png."""
    names = [f"{folder}{number}.png" for number in range(len(cells))]
    for number, name in enumerate(names):
        write_png(root / name, np.full((6, 6, 1), number, np.uint8))
    rows = map(",".join, zip(names, cells, strict=True))
    (root / "labels.csv").write_text("\n".join([header, *rows]))


def pixels(root, split):
    return {value for value, _ in contents(load(root, split))}


def test_the_folder_of_labels_csv_may_move(tmp_path, monkeypatch):
    write_labeled(tmp_path / "old", ["cat", "dog"] * 30)
    test = pixels(tmp_path / "old", Split.TEST)
    assert 1 < len(test) < 30
    assert not test & pixels(tmp_path / "old", Split.TRAIN)
    (tmp_path / "old").rename(tmp_path / "new")
    assert pixels(tmp_path / "new", Split.TEST) == test
    monkeypatch.chdir(tmp_path / "new")
    assert pixels(".", Split.TEST) == pixels("../new/", Split.TEST) == test


@pytest.mark.parametrize(
    ("cells", "header", "message"),
    [
        *((cells, "label", "too few classes") for cells in (" ", "cat ")),
        *(("1 0", "cat", "too few"), ("0,1 1,0", "cat,cat", "different")),
        ("0,,1 1,,0", "cat,,dog", "is 0 or 1"),
        ("0,1,1 1,0,1", "cat,,dog", "different"),
        ("cat d\x1b[2Jog", "label", "printable"),
    ],
)
def test_classes_of_labels_csv(tmp_path, cells, header, message, capsys):
    write_labeled(tmp_path, cells.split(" "), header=f"file,{header}")
    with pytest.raises(UserError, match=message):
        load(tmp_path)
    assert not capsys.readouterr().out  # checked before they are printed


def test_labels_csv_is_in_all_folders_of_a_split_or_in_none(tmp_path):
    folders = {part: tmp_path / part for part in ("train", "test")}
    for root in folders.values():
        write_labeled(root, ["cat", "dog"])
    assert len(pixels(tmp_path, Split.TRAIN)) == 2
    assert len(pixels(tmp_path, Split.TEST)) == 2
    for root in folders.values():
        (root / "labels.csv").rename(tmp_path / "labels.csv")
        for split in Split.TRAIN, Split.TEST:
            with pytest.raises(UserError, match=r"labels\.csv must"):
                load(tmp_path, split)
        (tmp_path / "labels.csv").rename(root / "labels.csv")
    write_labeled(folders["test"], ["cat", "bird"])
    with pytest.raises(UserError, match="no .* 'bird'"):
        load(tmp_path, Split.TEST)


def test_images_of_several_classes(tmp_path):
    write_labeled(tmp_path, ["", "cat", "dog", "cat,dog"] * 10, "photos/")
    rows = {}
    for split in Split.TRAIN, Split.TEST:
        pipeline = load(tmp_path, split)
        assert pipeline.spec.class_names == ("cat", "dog")
        assert pipeline.spec.num_targets == keys.SEVERAL_LABELS
        ((x, y),) = pipeline.evaluation_batches(100)
        values = np.rint(x[keys.IMAGES][:, 0, 0, 0] * 255).tolist()
        rows.update(zip(values, y[keys.LABELS].tolist(), strict=True))
    assert 3 <= pipeline.spec.num_images <= 15
    assert rows == {n: [n % 2, n // 2 % 2] for n in range(40)}
    with pytest.raises(UserError, match="num_targets=2"):
        load(tmp_path, num_targets=2)


def test_classes_without_training_images_are_named(tmp_path, capsys):
    write_labeled(tmp_path, ["cat", "dog"] * 20)
    held_out = pixels(tmp_path, Split.TEST)
    cells = ["rare" if n in held_out else "common" for n in range(40)]
    write_labeled(tmp_path, cells)
    load(tmp_path)
    warning = capsys.readouterr().out.splitlines()[-1]
    assert re.match("Warning.* rare", warning)
