"""A folder of images, with one sub-folder for each class."""

import concurrent.futures
import hashlib
import os

import numpy as np
import tensorflow as tf

from input_data.dataset import DataSet
from input_data.features import DIVIDED_FOR_TEST, DIVIDED_FOR_VALIDATION
from input_data.formats.files import paths_in, require_folder
from input_data.formats.image_file import SUFFIXES, decoded, read
from input_data.images import LabelledImages, make_pipeline
from input_data.memory import COPIES, require_memory
from input_data.transforms.resizing import resize
from old.errors import UserError
from old.fields import did_you_mean
from old.text import is_utf8, printable

# About one image in this many is held out for testing or validation.
HELD_OUT_SHARE = 5
_HASH_BYTES = 8
_SPLIT_FOLDERS = ["test", "train"]


def load(split, options):
    """The pipeline of one split of a folder of images.

    The sub-folders are the classes, in the order of their names. If there are
    exactly two, named train and test, those hold the classes. Else about a
    fifth of each class is for testing, see `divide`. Validation holds out
    about a fifth of each class of the training images. Hidden files, files
    without an image's suffix, and files beside the sub-folders are left out.

    Args:
      split: `Split`.
      options: `Options`; `data_dir` is the folder; `image_size`, if given, is
        the height and width to which images are resized (their proportions
        are not kept); `color` keeps three channels, else images become grey.

    Returns:
      `Pipeline`; its spec's `split_seed` is the seed if that decides the
      split, and `split_fingerprints` then has the digest of each.

    Raises:
      UserError: naming the folder or file, if there are fewer than two
        classes, one is empty, a file is not an image, images are of several
        sizes and no `image_size` is given, or there are too few to split.
    """
    if options.data_dir is None:
        raise UserError(
            "--dataset=images needs --data_dir, a folder with one sub-folder "
            "of images for each class"
        )
    root = require_folder(options.data_dir)
    split_fingerprints, left_out = {}, []
    if [folder.name for folder in _folders(root)] == _SPLIT_FOLDERS:
        classes = _classes(root / "train")
        train, test = (
            _list_files(root / name, classes, left_out)
            for name in ("train", "test")
        )
    else:
        classes = _classes(root)
        files = _list_files(root, classes, left_out)
        train, test, split_fingerprints[DIVIDED_FOR_TEST] = divide(
            files, options.seed, "test", root
        )
    if split.is_held_out:
        train, test, split_fingerprints[DIVIDED_FOR_VALIDATION] = divide(
            train, options.seed, "validation", root
        )
    if left_out:
        print(
            f"Note: left out {len(left_out)} without a suffix of images "
            f"({', '.join(SUFFIXES)}), such as {printable(str(left_out[0]))}"
        )
    files = train if split.is_training else test
    # A first part of the files, if no more are evaluated, has all classes.
    np.random.default_rng(0).shuffle(files)
    data = _read(files, tuple(classes), options.image_size, options.color)
    return make_pipeline(
        data,
        options,
        split_seed=options.seed if split_fingerprints else None,
        split_fingerprints=split_fingerprints,
    )


def divide(files, seed, purpose, root):
    """Holds out about a fifth of each class, and of two or more at least one.

    Each file's own hash decides, so that files that come or go leave the
    others where they are. Only where a class would have no file on one side
    is the file nearest to it put there; the digest is of those alone. As long
    as it stays the same, no file changes sides.

    Args:
      files: list of (path, class).
      seed: int, and
      purpose: string: which files are held out.
      root: path of the folder, for the message.

    Returns:
      Lists of (path, class) of those that stay and those held out, and the
      digest, a string.

    Raises:
      UserError: if no class has two files.
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
    if not held_out:
        raise UserError(
            f"{root} has one training image of each class: none can be held "
            "out for testing or validation"
        )
    names = "/".join(f"{path.parent.name}/{path.name}" for path, _ in moved)
    return kept, held_out, hashlib.sha256(os.fsencode(names)).hexdigest()[:16]


def _folders(root):
    return [path for path in _visible(root) if os.path.isdir(path)]


def _visible(folder):
    return [p for p in paths_in(folder) if not p.name.startswith(".")]


def _classes(root):
    classes = [folder.name for folder in _folders(root)]
    if len(classes) < 2:
        raise UserError(
            f"{root} needs one sub-folder of images for each class, two or "
            f"more; it has: {', '.join(classes) or 'none'}"
        )
    for name in classes:
        if not is_utf8(name):
            raise UserError(
                f"{printable(str(root / name))}: a class needs a name in "
                "UTF-8, as a checkpoint records it: rename the folder"
            )
    return classes


def _list_files(root, classes, left_out):
    """All (path, class) in the sub-folders; what is no image is left out."""
    files = []
    for folder in _folders(root):
        if folder.name not in classes:
            raise UserError(
                f"{folder} has no counterpart in {root.with_name('train')}"
                f"{did_you_mean(folder.name, classes)}: the classes there are "
                f"{', '.join(classes)}"
            )
        members = []
        for path in _visible(folder):
            if os.path.isdir(path):
                raise UserError(f"{path} is a folder, expected an image")
            is_image = path.suffix.lower() in SUFFIXES
            (members if is_image else left_out).append(path)
        if not members:
            raise UserError(
                f"{folder} has no images ({', '.join(SUFFIXES)}): a class "
                "needs some"
            )
        label = classes.index(folder.name)
        files += [(path, label) for path in members]
    if not files:
        raise UserError(f"{root} has no sub-folders with images")
    return files


def _read(files, class_names, image_size, color):
    """The `LabelledImages` of a list of (path, class)."""
    paths, labels = zip(*files, strict=True)
    depth = 3 if color else 1
    if image_size is None:
        size = _read_image(paths[0], None, color).shape[:2]
    else:
        size = (image_size, image_size)
    shape = (len(paths), *size, depth)
    require_memory(COPIES * np.prod(shape, dtype=float), "--dataset=images")
    images = np.empty(shape, np.uint8)

    def read(path):
        image = _read_image(path, image_size, color)
        if image.shape[:2] != size:
            raise UserError(
                f"{path} has {image.shape[0]}x{image.shape[1]} pixels, and "
                f"{paths[0]} has {size[0]}x{size[1]}: say by --image_size, in "
                "pixels, to what size to bring them"
            )
        return image

    with concurrent.futures.ThreadPoolExecutor() as executor:
        for place, image in enumerate(executor.map(read, paths)):
            images[place] = image
    return LabelledImages(
        images, np.array(labels), len(class_names), class_names
    )


def _read_image(path, image_size, color):
    """An image uint8 [H, W, C], grey or coloured, resized if asked for."""
    with decoded(read(path), path, color) as image:
        if image_size is None:
            return image
        with tf.device("CPU:0"):
            return resize(image, (image_size, image_size)).numpy()


DATA_SET = DataSet(load, resizes=True, colors=True)
