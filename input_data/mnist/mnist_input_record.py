"""MNIST and MultiMNIST from the reference's record files.

One digit: `--data_dir` is a folder, and its file for the split is

  training              train_{shift}shifted_mnist.tfrecords
  testing               test_0shifted_mnist.tfrecords
  training, validation  train_{shift}shifted_mnist_valid.tfrecords,
                        else valid_train_{shift}shifted_mnist.tfrecords
  testing, validation   test_0shifted_mnist_valid.tfrecords,
                        else valid_test_0shifted_mnist.tfrecords

For validation the first name is the one that the reference's reader opens,
the second the one that its mnist_shift writes; where there are both, the
first is read. The images are of any size: they are shifted and padded as
they were written.

Two digits: `--data_dir=PREFIX.tfrecords@10` stands for the files
PREFIX.tfrecords-00000-of-00010 to PREFIX.tfrecords-00009-of-00010, whatever
the split: training and evaluation each name their own. Pairs are made of two
images, so that none can be held out of them: for validation PREFIX must be
that of multivalid_train or multivalid_test.

A training step takes records from anywhere in the files, by a permutation of
all of them for each pass: no two steps of a pass show a record twice, and the
copies of one digit, which stand next to each other, are as far apart as any.
Nothing but the records of the steps at hand is in memory.
"""

import os
import pathlib

import numpy as np
import tensorflow as tf

from common.errors import UserError
from input_data import features as keys
from input_data.files import require_folder
from input_data.labelled_images import (
    SINGLE_SHIFT,
    SingleObjects,
    refuse_distorted_pairs,
)
from input_data.mnist import records
from input_data.pipeline import Pipeline, two_target_batch
from input_data.shifting import unit_range
from input_data.tfrecords import TFRecordFiles

# Height and width of MNIST's images, to which padding is added.
SIZE = 28
# Test images are not shifted.
TEST_SHIFT = 0


def find(split, options):
    """The pipeline of the record files that `data_dir` names or holds.

    Args:
      split: `Split`.
      options: `registry.Options`, `data_dir` not None.

    Returns:
      `Pipeline`, or None if there are no record files for it.

    Raises:
      UserError: if files are missing, damaged, or not as the options say.
    """
    if records.names_shards(options.data_dir):
        if options.num_targets != 2:
            raise UserError(
                f"--data_dir={options.data_dir} names record files of pairs: "
                "add --num_targets=2, or name a folder"
            )
        _require_split(split, options.data_dir)
        return PairRecords(options)
    if options.num_targets != 1:
        if not os.path.isdir(options.data_dir):
            raise UserError(
                f"--data_dir={options.data_dir} is not a folder"
                + advice(split, options)
            )
        return None
    folder = require_folder(options.data_dir)
    for name in _single_names(split, options):
        path = folder / name
        if path.is_file():
            return SingleRecords(path, options)
    return None


def advice(split, options):
    """What to say besides where there are neither idx files nor records.

    Args:
      split: `Split`.
      options: `registry.Options`, with which `find` returned None.

    Returns:
      String, the rest of a message.
    """
    if options.num_targets == 1:
        names = " or ".join(_single_names(split, options))
        return f". As a record file it would be {names}."
    path = pathlib.Path(options.data_dir)
    folder = path if os.path.isdir(path) else path.parent
    found = records.sharded_names(folder) if os.path.isdir(folder) else []
    return ". Record files of pairs are named by --data_dir=" + (
        " or ".join(found) or "PREFIX.tfrecords@COUNT"
    )


def _single_names(split, options):
    """The names of the file with single digits, the first one first."""
    shift = SINGLE_SHIFT if options.shift is None else options.shift
    return records.single_names(
        split, shift if split.is_training else TEST_SHIFT
    )


def _require_split(split, data_dir):
    """Raises UserError if --validate asks for a split that is not named."""
    prefix = records.pairs_prefix(split)
    name = pathlib.Path(data_dir).name
    if split.is_held_out and not name.startswith(prefix):
        raise UserError(
            f"--validate needs record files of its own split: --data_dir="
            f"{data_dir} must name {prefix}... (mnist_shift.py "
            f"--split={split.value} writes them), or leave out --validate"
        )


class _Records:
    """The records of some files, verified and parsed.

    Attributes:
      shape: (height, width, depth) of every image.
    """

    def __init__(self, paths, layout):
        self._files = TFRecordFiles(paths)
        self._layout = layout
        first = self._files.read([0])[0]
        self.shape = records.image_shape(first, layout, paths[0])

    def __len__(self):
        return len(self._files)

    def read(self, indices):
        """Labels int32 [labels, B], images uint8 [images, B, H, W, C]."""
        indices = np.asarray(indices)
        return records.parse(
            self._files.read(indices),
            self._layout,
            self.shape,
            lambda place: self._files.locate(indices[place]),
        )


class SingleRecords(SingleObjects):
    """One digit from each record; the digits are shifted in the file.

    Args:
      path: path of the file.
      options: `registry.Options`.

    Raises:
      UserError: if the file is damaged, or not padded as the options say.
    """

    def __init__(self, path, options):
        self._records = _Records([path], records.SINGLE)
        height, width, _ = self._records.shape
        padded = None if options.pad is None else SIZE + 2 * options.pad
        if padded is not None and (height, width) != (padded, padded):
            raise UserError(
                f"{path} has images of {height}x{width}, but with "
                f"--pad={options.pad} they are {padded}x{padded}: leave out "
                "--pad, or write the file with it"
            )
        super().__init__(
            self._records.shape,
            records.NUM_CLASSES,
            len(self._records),
            options.eval_size,
            shift=0,
            pad=0,
            distort=options.distort,
            augment=options.augment,
        )

    def _take(self, indices):
        labels, images = self._in_python(
            self._records.read, [indices], [tf.int32, tf.uint8]
        )
        labels.set_shape((1, indices.shape[0]))
        images.set_shape((1, indices.shape[0], *self._records.shape))
        return images[0], labels[0]


class PairRecords(Pipeline):
    """Two digits from each record, merged in the file.

    Args:
      options: `registry.Options` with `data_dir` of the form PREFIX@COUNT.

    Raises:
      UserError: if files are missing or damaged, or the options ask for what
        was settled when they were written.
    """

    def __init__(self, options):
        refuse_distorted_pairs(options)
        for flag in ("shift", "pad"):
            if getattr(options, flag) is not None:
                raise UserError(
                    f"--{flag} does not apply to record files of pairs, which "
                    "are shifted and padded as they were written: leave it out"
                )
        self._records = _Records(
            records.shard_paths(options.data_dir), records.PAIR
        )
        super().__init__(
            keys.Spec(
                keys.ImageShape(*self._records.shape, records.NUM_CLASSES),
                num_targets=2,
                num_examples=min(options.eval_size, len(self._records)),
            ),
            len(self._records),
        )

    def _training_batch(self, step, batch_size, seed):
        return self._evaluation_batch(
            self.training_indices(step, batch_size, seed)
        )

    def _evaluation_batch(self, indices):
        labels, images = self._in_python(
            self._records.read, [indices], [tf.int32, tf.uint8]
        )
        labels.set_shape((2, indices.shape[0]))
        images.set_shape((3, indices.shape[0], *self._records.shape))
        first, second, merged = (unit_range(images[part]) for part in range(3))
        return two_target_batch(
            merged,
            (first, second),
            (labels[0], labels[1]),
            records.NUM_CLASSES,
        )
