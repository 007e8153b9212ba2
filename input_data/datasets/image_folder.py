"""A folder of images with one sub-folder for each class."""

import concurrent.futures
import hashlib
import os
import pathlib

import numpy as np
import tensorflow as tf

from common.errors import UserError, reading
from input_data import image_file
from input_data.features import DIVIDED_FOR_TEST, DIVIDED_FOR_VALIDATION
from input_data.files import labelled_images
from input_data.images import make_pipeline
from input_data.transforms import resize

# About one image in this many is held out for testing or validation.
HELD_OUT_SHARE = 5
_HASH_BYTES = 8
_SUFFIXES = (".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".bmp", ".gif", ".webp")


def load(split, config):
    """The pipeline of one split.

    The sub-folders of `data_dir` are the classes, in the order of their names.
    If they are two named train and test, those hold the classes; else `divide`
    holds out images for testing. It also holds out training images for
    validation. Hidden files and files without an image's suffix are ignored.
    """
    if config.data_dir is None:
        raise UserError(
            "--dataset=images needs --data_dir, a folder with one sub-folder "
            "of images for each class"
        )
    root, fingerprints = pathlib.Path(config.data_dir), {}
    classes = _folders(root)
    if classes == ["test", "train"]:
        classes = _folders(root / "train")
        train, test = (
            _files(root / part, classes) for part in ("train", "test")
        )
    else:
        train, test, fingerprints[DIVIDED_FOR_TEST] = divide(
            _files(root, classes), config.seed, "test"
        )
    if split.is_held_out:
        train, test, fingerprints[DIVIDED_FOR_VALIDATION] = divide(
            train, config.seed, "validation"
        )
    files = train if split.is_training else test
    if not files:
        raise UserError(
            f"{root} has one image of each class, of which none can be held "
            "out: add images"
        )
    # The first part of the files, with a small eval_size, has all classes.
    np.random.default_rng(0).shuffle(files)
    images = _read(files, config.image_size, config.color)
    labels = [label for _, label in files]
    data = labelled_images(root, images, labels, len(classes), tuple(classes))
    return make_pipeline(
        data,
        config,
        split_seed=config.seed if fingerprints else None,
        split_fingerprints=fingerprints,
    )


def divide(files, seed, purpose):
    """Holds out about a fifth of each class, at least one of two or more.

    The hash of its name decides for each file, whatever other files there are.
    Only if a class would have no file on one side, the file with the nearest
    hash moves there. The digest is of those files: as long as it stays the
    same, no file has changed sides.

    Args:
      files: list of (path, class).
      seed: int.
      purpose: string, part of the hashed text.

    Returns:
      Lists of (path, class) of the files that stay and of those held out, and
      the digest, a string.
    """
    bound = 2 ** (8 * _HASH_BYTES) // HELD_OUT_SHARE

    def place(file):
        name = f"{seed}/{purpose}/{file[0].parent.name}/{file[0].name}"
        digest = hashlib.sha256(os.fsencode(name)).digest()
        return int.from_bytes(digest[:_HASH_BYTES], "big")

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
        folders = [path for path in root.iterdir() if path.is_dir()]
    return sorted(p.name for p in folders if not p.name.startswith("."))


def _files(root, classes):
    """All (path, class) in the sub-folders, sorted."""
    files = []
    for name in _folders(root):
        if name not in classes:
            raise UserError(f"{root / name} is not a class of the training")
        paths = sorted(
            path
            for path in (root / name).iterdir()
            if path.suffix.lower() in _SUFFIXES and path.name[0] != "."
        )
        if not paths:
            raise UserError(f"{root / name} has no images")
        files += [(path, classes.index(name)) for path in paths]
    if not files:
        raise UserError(f"{root} has no folder of images for each class")
    return files


def _read(files, image_size, color):
    """uint8 array [N, H, W, C], resized to squares if there is a size."""

    def read(file):
        image = image_file.read(file[0], color)
        if image_size is None:
            return image
        with tf.device("CPU:0"):
            return resize(image, (image_size, image_size)).numpy()

    with concurrent.futures.ThreadPoolExecutor() as executor:
        images = list(executor.map(read, files))
    for (path, _), image in zip(files, images, strict=True):
        if image.shape != images[0].shape:
            raise UserError(
                f"{path} and {files[0][0]} differ in size: add --image_size"
            )
    return np.stack(images)
