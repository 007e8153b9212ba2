"""A folder of images, with sub-folders for classes or with labels.csv."""

import bisect
import collections
import hashlib
import os
import pathlib

import numpy as np

from common.errors import UserError, user_errors
from input_data.files import (
    POOL,
    decode_image,
    image_shape,
    is_hidden,
    list_images,
    normal_form,
)
from input_data.images import check_class_names, labeled_images, make_pipeline
from input_data.labels_file import read_labels
from input_data.preparation import resize
from input_data.stored import StoredRows, file_digest, file_mark, is_large

_PARTS = {"valid": "val", "validation": "val"}


def load(split, config):
    """The pipeline of one split; docs/data.md describes the folder."""
    root, seed, fingerprints = pathlib.Path(config.data_dir), config.seed, {}
    folders = _folders(root)
    parts = {_PARTS.get(f.name.lower(), f.name.lower()): f for f in folders}
    is_split = {"train"} < parts.keys() <= {"train", "val", "test"}
    if not is_split or len(parts) < len(folders):
        parts = {}
    root_of_classes = parts.get("train", root)
    classes, several = _classes(root, parts)
    # Names that are not UTF-8 cannot be drawn, but must stay different.
    names = [name.encode(errors="replace").decode() for name in classes]
    if len(set(names)) < len(names):
        names = [n.encode(errors="backslashreplace").decode() for n in classes]
    check_class_names(root_of_classes, names, len(names))
    files = _files(root_of_classes, classes, several)

    def hold_out(files, purpose):
        *divided, digest = divide(files, seed, purpose, root_of_classes)
        if files:
            _report(names, files, divided[1], purpose)
        fingerprints[f"divided_for_{purpose}"] = digest
        return divided

    if parts:
        order = ("val", "test") if split.is_held_out else ("test", "val")
        part = next(name for name in order if name in parts)
        train, test = files, _files(parts[part], classes, several)
    else:
        train, test = hold_out(files, "test")
    if split.is_held_out and "val" not in parts:
        train, test = hold_out(train, "validation")
    files = train if split.is_training else test
    if not files:
        folder = parts[part] if parts and not split.is_training else root
        least = "images" if parts else "two images or more"
        raise UserError(f"{folder} needs a folder for each class, with {least}")
    # Shuffled, so that the first files (a small eval_size) have all classes.
    np.random.default_rng(0).shuffle(files)
    images = _images(root, files, config)
    labels = [label for _, label in files]
    if several:
        labels = [[name in found for name in classes] for found in labels]
    data = labeled_images(root, images, labels, len(classes), names)
    data.fingerprints.update(fingerprints)
    split_seed = seed if fingerprints else None
    return make_pipeline(data, config, split_seed=split_seed)


def divide(files, seed, purpose, root):
    """Holds out each file with probability 1/5, decided by a hash.

    The hash is of `seed`, `purpose` and the path relative to `root`. Two
    exceptions: of one file of a class none is held out; of several, at least
    one is and at least one stays (those nearest to the bound). While they stay
    the same, adding or removing files leaves all others in their part.

    `files` is a list of (path, class); those whose class is a list of names are
    divided as one class. Returns the files that stay, the files held out, and a
    digest of the names of the exceptions.
    """
    bound = 2**64 // 5

    def place(file):
        name = os.fsencode(f"{seed}/{purpose}/{_key(file[0], root)}")
        digest = hashlib.sha256(name).digest()
        return int.from_bytes(digest[:8], "big")

    by_class = {}
    for file in files:
        group = None if isinstance(file[1], list) else file[1]
        by_class.setdefault(group, []).append(file)
    kept, held_out, moved = [], [], []
    for members in by_class.values():
        members.sort(key=place)
        drawn = bisect.bisect_left(members, bound, key=place)
        count = min(max(drawn, 1), len(members) - 1)
        held_out += members[:count]
        kept += members[count:]
        moved += members[min(count, drawn) : max(count, drawn)]
    names = "/".join(_key(path, root) for path, _ in moved)
    return kept, held_out, hashlib.sha256(os.fsencode(names)).hexdigest()[:16]


def _report(classes, files, held_out, purpose):
    totals, counts = (
        collections.Counter(
            name
            for _, label in part
            for name in (label if isinstance(label, list) else [classes[label]])
        )
        for part in (files, held_out)
    )
    parts = [f"{name} {counts[name]} of {totals[name]}" for name in classes]
    few = [c for c in classes if not 0.1 <= counts[c] / (totals[c] or 1) < 1]
    print(f"Held out for {purpose}: {', '.join(parts)}", flush=True)
    if few:
        print(
            f"Warning: this is less than a tenth, or all, of {', '.join(few)}: "
            "add images, or try another --seed",
            flush=True,
        )


def _key(path, root):
    """The path below `root`, in normal form C: what is hashed."""
    return normal_form("/".join(path.parts[len(root.parts) :]))


def _folders(root):
    with user_errors(root):
        paths = [p for p in sorted(root.iterdir()) if not is_hidden(p.name)]
        # Reading a link without a target reports it.
        return [p for p in paths if p.is_dir() or not p.exists()]


def _classes(root, parts):
    """The sorted classes; and a dict from each folder to its `read_labels`."""
    several = {f: read_labels(f) for f in parts.values() or [root]}
    misplaced = parts and read_labels(root)
    if misplaced or len(set(map(bool, several.values()))) > 1:
        raise UserError(
            f"{root}: labels.csv must be in each of the folders "
            f"{', '.join(sorted(parts))}, or in none of them, and only there"
        )
    folder = parts.get("train", root)
    if several[folder] is None:
        return sorted({normal_form(f.name) for f in _folders(folder)}), {}
    classes, _ = several[folder]
    if len(classes) < 2:
        raise UserError(f"{folder}: labels.csv has too few classes: {classes}")
    return classes, several


def _files(root, classes, several):
    """List of (path, class or classes) of all images in a folder, sorted."""
    if several:
        found, labels = several[root]
        if unknown := set(found).difference(classes):
            raise UserError(f"{root}: no training image is {min(unknown)!r}")
        return list(labels.items())
    files = []
    for folder in _folders(root):
        name = normal_form(folder.name)
        if name not in classes:
            raise UserError(f"{folder}: the training images have no such class")
        label = classes.index(name)
        found, others = list_images(folder)
        # If the folder is closed, reading it reports this.
        paths = [p for p in map(pathlib.Path, found) if folder in (p.parent, p)]
        if nested := len(found) - len(paths):
            others = f"{others or 'no files'}; {nested} in sub-folders"
        if others:
            print(f"Warning: {folder}: ignored {others}", flush=True)
        if not paths:
            raise UserError(
                f"{folder} has no images directly in it; a split needs folders "
                "train and test, and perhaps val, see docs/data.md. Found: "
                f"{', '.join(classes[:9])}"
            )
        files += [(path, label) for path in paths]
    return files


def _images(root, files, config):
    """`StoredRows` of images, resized to squares if there is a size."""
    color, size, method = config.color, config.image_size, config.resize
    marks = {}
    paths = np.array([path for path, _ in files], object)
    if size is None:
        shape = image_shape(paths[0], color)
    else:
        shape = size, size, 3 if color else 1

    def check(path, found):
        if found != shape:
            raise UserError(
                f"{root} has images of many sizes, as {path}: add --image_size"
            )

    def decode(path):
        with user_errors(path):
            image = decode_image(path.read_bytes(), path, color)
            file_mark(path, marks.get(path))
            if size is not None:
                image = resize(image, (size, size), method)
        check(path, image.shape)
        return image

    def read(paths):
        images = POOL.map(decode, paths)
        return np.fromiter(images, (np.uint8, shape), len(paths))

    def describe(paths):
        settings = repr((color, size, method)).encode()
        return b"".join([*POOL.map(file_digest, paths), settings])

    images = StoredRows(paths, shape, np.uint8, read, describe)
    if is_large(images):
        marks.update(zip(paths, POOL.map(file_mark, paths), strict=True))
    if size is None and marks:
        shapes = POOL.map(lambda path: image_shape(path, color), paths)
        for path, found in zip(paths, shapes, strict=True):
            check(path, found)
    return images
