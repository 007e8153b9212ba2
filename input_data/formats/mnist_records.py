"""The reference's MNIST record files: their names and what is in a record.

one digit   height, width, depth, label (int64), image_raw (bytes)
two digits  height, width, depth, label_1, label_2 (int64), image_raw_1,
            image_raw_2, merged_raw (bytes)
"""

import os
import pathlib
import re

from input_data.formats.files import paths_in
from input_data.formats.image_records import Layout
from old.errors import UserError
from old.text import listed

NUM_CLASSES = 10
SINGLE = Layout(("label",), ("image_raw",), NUM_CLASSES)
PAIR = Layout(
    ("label_1", "label_2"),
    ("image_raw_1", "image_raw_2", "merged_raw"),
    NUM_CLASSES,
)
# The five digits in a file's name.
MAX_SHARDS = 99999
_SHARDS = re.compile(r"(?P<prefix>.+)@(?P<count>[0-9]+)")
_SHARD = re.compile(r"(?P<prefix>.+)-[0-9]{5}-of-(?P<count>[0-9]{5})")


def single_names(split, shift):
    """The names that a file of a split with one digit in a record may have.

    The first is the one that the reference's reader opens, and that is
    written here; the reference's mnist_shift wrote validation's under another.
    """
    base = "train" if split.is_training else "test"
    names = (
        f"{base}_{shift}shifted_mnist{'_valid' * split.is_held_out}.tfrecords",
        f"{split.value}_{shift}shifted_mnist.tfrecords",
    )
    return list(dict.fromkeys(names))


def pairs_name(split, shift):
    """The file name of a split with two digits in each record, unsharded."""
    return f"{pairs_prefix(split)}_{shift}shifted_mnist.tfrecords"


def pairs_prefix(split):
    """How all names of files with two digits begin: they tell the split."""
    return f"multi{split.value}"


def shard_name(name, shard, num_shards):
    """The file name of one shard of `name`."""
    return f"{name}-{shard:05d}-of-{num_shards:05d}"


def names_shards(data_dir):
    """Whether `data_dir` is of the form PREFIX@COUNT, and no folder."""
    return _SHARDS.fullmatch(str(data_dir)) is not None and not os.path.isdir(
        data_dir
    )


def shard_paths(data_dir):
    """The paths of all shards of PREFIX@COUNT.

    Args:
      data_dir: string of that form, such as
        data/multitest_4shifted_mnist.tfrecords@10.

    Returns:
      List of COUNT paths.

    Raises:
      UserError: if COUNT is 0 or too many, or files are missing.
    """
    match = _SHARDS.fullmatch(str(data_dir))
    digits = match["count"].lstrip("0")
    if not digits:
        raise UserError(f"--data_dir={data_dir} names no files: @0")
    if len(digits) > len(str(MAX_SHARDS)):
        raise UserError(
            f"--data_dir={match['prefix']}@{digits[:9]}... names too many "
            f"files: at most {MAX_SHARDS:,}"
        )
    count, prefix = int(digits), pathlib.Path(match["prefix"])
    paths = [
        prefix.parent / shard_name(prefix.name, shard, count)
        for shard in range(count)
    ]
    there = {path.name for path in paths_in(prefix.parent)}
    missing = [path.name for path in paths if path.name not in there]
    if missing:
        others = [
            name
            for name in sharded_names(prefix.parent)
            if name.startswith(f"{prefix}@") and name != f"{prefix}@{count}"
        ]
        hint = f"there is {', '.join(others)}; " if others else ""
        raise UserError(
            f"--data_dir={data_dir}: {hint}{len(missing)} of {count} files are "
            f"missing in {prefix.parent}: {listed(missing, 3)}"
        )
    return paths


def sharded_names(folder):
    """What stands for the shards in a folder.

    Args:
      folder: `pathlib.Path`.

    Returns:
      List of strings PREFIX@COUNT, sorted.

    Raises:
      UserError: if the folder cannot be read.
    """
    matches = [_SHARD.fullmatch(path.name) for path in paths_in(folder)]
    found = {(m["prefix"], int(m["count"])) for m in matches if m}
    return [f"{folder / name}@{count}" for name, count in sorted(found)]
