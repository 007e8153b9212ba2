"""MNIST and MultiMNIST from the reference's record files.

One digit: `data_dir` is a folder, and its file for the split is

  TRAIN        train_{shift}shifted_mnist.tfrecords
  TEST         test_0shifted_mnist.tfrecords
  VALID_TRAIN  train_{shift}shifted_mnist_valid.tfrecords,
               else valid_train_{shift}shifted_mnist.tfrecords
  VALID_TEST   test_0shifted_mnist_valid.tfrecords,
               else valid_test_0shifted_mnist.tfrecords

For validation the reference's reader opens the first name, and its
mnist_shift writes the second. Images are shifted and padded in the file.

Two digits: `data_dir` is PREFIX.tfrecords@10 for the files
PREFIX.tfrecords-00000-of-00010 and so on, for training and evaluation alike.
Validation needs the files of multivalid_train and multivalid_test, as two pairs
may share an image.
"""

import dataclasses
import pathlib
import re

import tensorflow as tf

from common.errors import UserError
from input_data.images import SINGLE_SHIFT, SingleObjects, shift_of
from input_data.pipeline import Pipeline
from input_data.records import Layout, RecordFiles
from input_data.transforms import unit_range

SINGLE = Layout(("label",), ("image_raw",), num_classes=10)
PAIR = Layout(
    ("label_1", "label_2"),
    ("image_raw_1", "image_raw_2", "merged_raw"),
    num_classes=10,
)
# How data_dir names record files, for messages about missing files.
HINT = (
    " nor record files of this shift (pairs are named by --data_dir="
    "PREFIX.tfrecords@COUNT with --num_targets=2)"
)
# Height and width of MNIST's images, to which padding is added.
_SIZE = 28
_SHARDS = re.compile(r"(?P<prefix>.+)@0*(?P<count>[1-9][0-9]{0,4})")


def single_names(split, shift):
    """File names of single digits; the first is the one that we write."""
    base = "train" if split.is_training else "test"
    names = (
        f"{base}_{shift}shifted_mnist{'_valid' * split.is_held_out}.tfrecords",
        f"{split.value}_{shift}shifted_mnist.tfrecords",
    )
    return list(dict.fromkeys(names))


def pairs_name(split, shift):
    """The file name of pairs, without the number of a shard."""
    return f"multi{split.value}_{shift}shifted_mnist.tfrecords"


def shard_name(name, shard, num_shards):
    """The file name of one shard of `name`."""
    return f"{name}-{shard:05d}-of-{num_shards:05d}"


def load(split, config):
    """The pipeline of the record files of a split.

    None if there are none, or none with this padding beside idx files.
    """
    match = _SHARDS.fullmatch(str(config.data_dir))
    if match:
        return _load_pairs(split, config, match["prefix"], int(match["count"]))
    if config.num_targets == 2:
        return None
    shift = shift_of(config, SINGLE_SHIFT) if split.is_training else 0
    for name in single_names(split, shift):
        path = pathlib.Path(config.data_dir, name)
        if path.is_file():
            return _load_single(path, config)
    return None


def _load_single(path, config):
    source = RecordFiles([path], SINGLE)
    height, width, _ = source.shape
    if config.pad is not None and not _is_padded(source, config.pad):
        if any(path.parent.glob("*-images-idx3-ubyte*")):
            return None
        raise UserError(
            f"{path} has images of {height}x{width}, not padded by "
            f"--pad={config.pad}"
        )
    pad = (height - _SIZE) // 2
    unpadded = dataclasses.replace(config, shift=0, pad=0)
    is_known = pad > 0 and _is_padded(source, pad)
    return SingleObjects(source, unpadded, pad=pad if is_known else None)


def _load_pairs(split, config, prefix, count):
    prefix = pathlib.Path(prefix)
    if config.num_targets != 2:
        raise UserError(f"--data_dir={config.data_dir} needs --num_targets=2")
    if split.is_held_out and not prefix.name.startswith(f"multi{split.value}"):
        raise UserError(
            f"--validate needs --data_dir=...multi{split.value}... in place "
            f"of {config.data_dir}; mnist_shift.py --split={split.value} "
            "writes such files"
        )
    names = [shard_name(prefix.name, shard, count) for shard in range(count)]
    source = RecordFiles([prefix.parent / name for name in names], PAIR)
    padded = config.pad is None or _is_padded(source, config.pad)
    if config.shift is not None or not padded:
        raise UserError(
            f"--shift and --pad do not apply to --data_dir={config.data_dir}"
        )
    return _PairRecords(
        source,
        source.shape[:2],
        num_targets=2,
        num_examples=min(config.eval_size, len(source)),
        note="which evaluates on the records of --data_dir, those of the "
        "training: for a test error name test records there",
    )


def _is_padded(source, pad):
    return source.shape[:2] == (_SIZE + 2 * pad, _SIZE + 2 * pad)


class _PairRecords(Pipeline):
    """Two digits from each record, merged in the file."""

    def _training_batch(self, step, batch_size, seed):
        return self._evaluation_batch(
            self.training_indices(step, batch_size, seed)
        )

    def _evaluation_batch(self, indices):
        labels, images = self._source.take_all(indices)
        first, second, merged = map(unit_range, tf.unstack(images))
        return self._batch(merged, (first, second), tf.unstack(labels))
