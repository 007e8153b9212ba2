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
they were written. By how much they were padded is seen by their size.

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

import dataclasses
import os
import pathlib

import tensorflow as tf

from input_data.formats import mnist_records
from input_data.formats.files import require_folder
from input_data.formats.image_records import ImageRecords
from input_data.images import (
    SINGLE_SHIFT,
    SingleObjects,
    shift_of,
)
from input_data.pipeline import Pipeline
from input_data.transforms.shifting import unit_range
from old.errors import UserError


class OtherPaddingError(UserError):
    """Records are not padded as the options say."""


# Height and width of MNIST's images, to which padding is added.
SIZE = 28
# Test images are not shifted.
TEST_SHIFT = 0
# Of a folder, training and evaluation read different files; of PREFIX@COUNT
# both read those that it names.
_NOTE_ON_PAIRS = (
    "which evaluates on the records of --data_dir, those of the training: for "
    "a test error name test records there"
)


def find(split, options):
    """The pipeline of the record files that `data_dir` names or holds.

    Args:
      split: `Split`.
      options: `Options`, `data_dir` not None.

    Returns:
      `Pipeline`, or None if there are no record files for it.

    Raises:
      OtherPaddingError: if they are padded otherwise than the options say.
      UserError: if files are missing, damaged, or not as the options say.
    """
    if mnist_records.names_shards(options.data_dir):
        if options.num_targets != 2:
            raise UserError(
                f"--data_dir={options.data_dir} names record files of pairs "
                "that overlap: add --num_targets=2 and no --pairs, or name a "
                "folder"
            )
        _require_split(split, options.data_dir)
        return PairRecords(options)
    if options.num_targets == 2:
        if not os.path.isdir(options.data_dir):
            raise UserError(
                f"--data_dir={options.data_dir} is not a folder"
                + hint(split, options)
            )
        return None
    folder = require_folder(options.data_dir)
    for name in _single_names(split, options):
        path = folder / name
        if os.path.isfile(path):
            return single_records(path, options)
    return None


def hint(split, options):
    """What to say besides where there are neither idx files nor records.

    Args:
      split: `Split`.
      options: `Options`, with which `find` returned None.

    Returns:
      String, the rest of a message.
    """
    if options.num_targets != 2:
        names = " or ".join(_single_names(split, options))
        return f". As a record file it would be {names}."
    path = pathlib.Path(options.data_dir)
    folder = path if os.path.isdir(path) else path.parent
    found = mnist_records.sharded_names(folder) if os.path.isdir(folder) else []
    return ". Record files of pairs are named by --data_dir=" + (
        " or ".join(found) or "PREFIX.tfrecords@COUNT"
    )


def _single_names(split, options):
    """The names of the file with single digits, the first one first."""
    shift = shift_of(options, SINGLE_SHIFT) if split.is_training else TEST_SHIFT
    return mnist_records.single_names(split, shift)


def _require_split(split, data_dir):
    """Raises UserError if --validate asks for a split that is not named."""
    prefix = mnist_records.pairs_prefix(split)
    name = pathlib.Path(data_dir).name
    if split.is_held_out and not name.startswith(prefix):
        raise UserError(
            f"--validate needs record files of its own split: --data_dir="
            f"{data_dir} must name {prefix}... (mnist_shift.py "
            f"--split={split.value} writes them), or leave out --validate"
        )


class _RecordSource:
    """Records where tf.data reads them.

    Attributes:
      shape: (height, width, depth) of every image.
      error: the `UserError` that ended reading, or None.
    """

    num_classes = mnist_records.NUM_CLASSES
    class_names = None
    error = None

    def __init__(self, paths, layout):
        self._records = ImageRecords(paths, layout)
        self._parts = (len(layout.labels), len(layout.images))
        self.shape = self._records.shape

    def __len__(self):
        return len(self._records)

    def take_all(self, indices):
        """Labels int32 [labels, B] and images uint8 [images, B, H, W, C]."""
        labels, images = tf.py_function(
            self._read, [indices], [tf.int32, tf.uint8]
        )
        labels.set_shape((self._parts[0], indices.shape[0]))
        images.set_shape((self._parts[1], indices.shape[0], *self.shape))
        return labels, images

    def take(self, indices):
        """Images uint8 [B, H, W, C] and labels int32 [B] of single digits."""
        labels, images = self.take_all(indices)
        return images[0], labels[0]

    def _read(self, indices):
        try:
            return self._records.read(indices.numpy())
        except UserError as error:
            self.error = error
            raise


def single_records(path, options):
    """The pipeline of one digit from each record, shifted in the file.

    Args:
      path: path of the file.
      options: `Options`.

    Returns:
      `Pipeline`.

    Raises:
      UserError: if the file is damaged, or not padded as the options say.
    """
    source = _RecordSource([path], mnist_records.SINGLE)
    _require_padded(source, path, options.pad)
    options = dataclasses.replace(options, shift=0, pad=0)
    return SingleObjects(source, options, pad=_padding(source))


def _padding(source):
    """By how much a square of digits was padded; None if it was not."""
    height, width, _ = source.shape
    pad, odd = divmod(height - SIZE, 2)
    return pad if height == width and pad > 0 and not odd else None


def _require_padded(source, name, pad):
    """Raises `OtherPaddingError` if images were not written with a padding.

    Args:
      source: `_RecordSource`.
      name: string, its files.
      pad: int, or None for any.
    """
    if pad is None:
        return
    height, width, _ = source.shape
    size = SIZE + 2 * pad
    if (height, width) != (size, size):
        raise OtherPaddingError(
            f"{name} has images of {height}x{width}, but with --pad={pad} they "
            f"are {size}x{size}: leave out --pad, or write the file with it"
        )


class PairRecords(Pipeline):
    """Two digits from each record, merged in the file.

    Args:
      options: `Options` with `data_dir` of the form PREFIX@COUNT.

    Raises:
      UserError: if files are missing or damaged, or the options ask for what
        was settled when they were written.
    """

    def __init__(self, options):
        if options.shift is not None:
            raise UserError(
                "--shift does not apply to record files of pairs, which are "
                "shifted as they were written: leave it out"
            )
        source = _RecordSource(
            mnist_records.shard_paths(options.data_dir), mnist_records.PAIR
        )
        # A checkpoint that was trained on pairs on the fly says its own.
        _require_padded(source, options.data_dir, options.pad)
        super().__init__(
            source,
            source.shape[:2],
            num_targets=2,
            num_examples=min(options.eval_size, len(source)),
            note=_NOTE_ON_PAIRS,
        )

    def _training_batch(self, step, batch_size, seed):
        return self._evaluation_batch(
            self.training_indices(step, batch_size, seed)
        )

    def _evaluation_batch(self, indices):
        labels, images = self._source.take_all(indices)
        first, second, merged = (unit_range(images[part]) for part in range(3))
        return self._batch(merged, (first, second), (labels[0], labels[1]))
