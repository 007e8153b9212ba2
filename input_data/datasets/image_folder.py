"""A folder of images with one sub-folder for each class."""

import concurrent.futures
import hashlib
import os
import pathlib

import numpy as np
import tensorflow as tf

from common.errors import UserError, reading
from input_data.files import decode_image
from input_data.images import labelled_images, make_pipeline
from input_data.transforms import resize

# About one image in this many is held out for testing or validation.
HELD_OUT_SHARE = 5
_SUFFIXES = (".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".bmp", ".gif", ".webp")


def load(split, config):
    """The pipeline of one split.

    The sub-folders of `data_dir` are the classes, in the order of their names.
    If they are two named train and test, those hold the classes; else `divide`
    holds out images for testing. It also holds out training images for
    validation. Hidden files and files without an image's suffix are ignored.
    """
    root, seed, fingerprints = pathlib.Path(config.data_dir), config.seed, {}
    classes = _folders(root)
    if classes == ["test", "train"]:
        classes = _folders(root / "train")
        train = _files(root / "train", classes)
        test = _files(root / "test", classes)
    else:
        train, test, fingerprints["divided_for_test"] = divide(
            _files(root, classes), seed, "test"
        )
    if split.is_held_out:
        train, test, fingerprints["divided_for_validation"] = divide(
            train, seed, "validation"
        )
    files = train if split.is_training else test
    if not files:
        raise UserError(
            f"{root} needs a folder for each class, with two images or more"
        )
    # The first part of the files, with a small eval_size, has all classes.
    np.random.default_rng(0).shuffle(files)
    images = _read(root, files, config.image_size, config.color)
    labels = [label for _, label in files]
    data = labelled_images(root, images, labels, len(classes), tuple(classes))
    return make_pipeline(
        data,
        config,
        split_seed=seed if fingerprints else None,
        split_fingerprints=fingerprints,
    )


def divide(files, seed, purpose):
    """Holds out about a fifth of each class, at least one of two or more.

    The hash of its name decides for each file, whatever other files there are.
    Only if a class would have no file on one side, the file with the nearest
    hash moves there. The digest is of those files: as long as it stays the
    same, no file has changed sides.

    Takes a list of (path, class); returns lists of those that stay and of
    those held out, and the digest. `purpose` is part of the hashed text.
    """
    bound = 2**64 // HELD_OUT_SHARE

    def place(file):
        name = f"{seed}/{purpose}/{file[0].parent.name}/{file[0].name}"
        digest = hashlib.sha256(os.fsencode(name)).digest()
        return int.from_bytes(digest[:8], "big")

    by_class = {}
    for file in files:
        by_class.setdefault(file[1], []).append(file)
    kept, held_out, moved = [], [], []
    for members in by_class.values():
        members.sort(key=place)
        drawn = sum(place(file) < bound for file in members)
        count = max(min(drawn, len(members) - 1), min(1, len(members) - 1))
        held_out += members[:count]
        kept += members[count:]
        moved += members[min(count, drawn) : max(count, drawn)]
    names = "/".join(f"{path.parent.name}/{path.name}" for path, _ in moved)
    return kept, held_out, hashlib.sha256(os.fsencode(names)).hexdigest()[:16]


def _folders(root):
    """The names of the visible sub-folders, sorted."""
    with reading(root):
        folders = [path.name for path in root.iterdir() if path.is_dir()]
    return sorted(name for name in folders if name[0] != ".")


def _files(root, classes):
    """All (path, class) in the sub-folders, sorted."""
    files = []
    for name in _folders(root):
        with reading(root / name):
            label = classes.index(name)
            paths = sorted(
                path
                for path in (root / name).iterdir()
                if path.suffix.lower() in _SUFFIXES and path.name[0] != "."
            )
            if not paths:
                raise ValueError("no images")
        files += [(path, label) for path in paths]
    return files


def _read(root, files, image_size, color):
    """uint8 array [N, H, W, C], resized to squares if there is a size."""

    def read(file):
        path, _ = file
        with reading(path):
            image = decode_image(path.read_bytes(), path, color)
        if image_size is None:
            return image
        with tf.device("CPU:0"):
            return resize(image, (image_size, image_size)).numpy()

    with concurrent.futures.ThreadPoolExecutor() as executor:
        images = list(executor.map(read, files))
    if len({image.shape for image in images}) > 1:
        raise UserError(f"{root} has images of many sizes: add --image_size")
    return np.stack(images)
