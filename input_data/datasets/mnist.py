"""MNIST and MultiMNIST from idx files, the reference's records or TFDS.

The idx format: http://yann.lecun.com/exdb/mnist/ (two zero bytes, the type of
the values, the number of axes, their lengths as big-endian uint32, the values).

Images in record files are already shifted and padded. PREFIX.tfrecords@10 as
`data_dir` stands for pairs in PREFIX.tfrecords-00000-of-00010 etc. Validation
on pairs needs other files, because pairs in the same file can share images.
"""

import dataclasses
import pathlib

import numpy as np
import tensorflow as tf

from common.errors import UserError
from input_data.datasets import tfds_images
from input_data.files import find_file, open_file
from input_data.images import labeled_images, make_pipeline
from input_data.pipeline import Pipeline
from input_data.records import RecordFiles
from input_data.registry import Split, select, shards_of
from input_data.transforms import unit_range

NUM_CLASSES = 10
# Keys of the labels and of the images of a record.
SINGLE = ("label",), ("image_raw",)
PAIR = ("label_1", "label_2"), ("image_raw_1", "image_raw_2", "merged_raw")
_SIZE = 28  # height and width of MNIST's images, to which padding is added


def load(split, config):
    """The pipeline of one split, from record files, idx files or TFDS."""
    if shards := shards_of(config.data_dir):
        return _load_pairs(split, config, shards[1], int(shards[2]))
    if config.data_dir is not None and config.num_targets != 2:
        shift = config.shift if split.is_training else 0
        for name in single_names(split, shift):
            path = pathlib.Path(config.data_dir, name)
            if path.is_file():
                print(f"Reading {path}", flush=True)
                data = RecordFiles([path], *SINGLE, NUM_CLASSES)
                pad = _padding(data)
                if config.pad in (0, pad):
                    config = dataclasses.replace(config, shift=0, pad=0)
                    stored = {"pad": pad} if pad else {}
                    return make_pipeline(data, config, settings=stored)
    return make_pipeline(read_split(split, config.data_dir), config)


def read_split(split, data_dir, tfds_name="mnist"):
    """The `LabeledImages` of one split, from idx files or TFDS."""
    training = split is not Split.TEST
    if data_dir is None:
        return select(split, tfds_images.read(tfds_name, training))
    prefix = "train" if training else "t10k"
    names = (f"{prefix}-images-idx3-ubyte", f"{prefix}-labels-idx1-ubyte")
    hint = (
        " nor record files with this --shift and --pad; other images need "
        "--dataset=images (a folder) or --dataset=arrays (.npy files)"
    )
    paths = [find_file(data_dir, n, f"{n}.gz", hint=hint) for n in names]
    images, labels = _read_idx(paths[0], 3), _read_idx(paths[1], 1)
    return select(split, labeled_images(paths[0], images, labels, NUM_CLASSES))


def _read_idx(path, num_axes):
    with open_file(path) as file:
        content = file.read()
        if content[:4] != bytes([0, 0, 8, num_axes]):  # 8: unsigned bytes
            raise ValueError(f"not an idx file of bytes with {num_axes} axes")
        shape = np.frombuffer(content, ">u4", num_axes, offset=4)
        pixels = np.frombuffer(content, np.uint8, offset=4 + 4 * num_axes)
        return pixels.reshape(shape)


def single_names(split, shift):
    """The name that the reference reads, then the one that it writes."""
    base = "train" if split.is_training else "test"
    return (
        f"{base}_{shift}shifted_mnist{'_valid' * split.is_held_out}.tfrecords",
        f"{split.value}_{shift}shifted_mnist.tfrecords",
    )


def shard_names(name, count):
    """The file names of all shards of `name`."""
    return [f"{name}-{shard:05d}-of-{count:05d}" for shard in range(count)]


def _padding(data):
    return max(0, data.images.shape[-2] - _SIZE) // 2


def _load_pairs(split, config, prefix, count):
    name = pathlib.Path(prefix).name
    if split.is_held_out and not name.startswith(f"multi{split.value}"):
        raise UserError(
            f"--validate needs --data_dir=...multi{split.value}... in place "
            f"of {config.data_dir}; mnist_shift.py --split={split.value} "
            "writes such files"
        )
    data = RecordFiles(shard_names(prefix, count), *PAIR, NUM_CLASSES)
    if config.num_targets != 2 or config.pad not in (0, _padding(data)):
        raise UserError(
            f"--data_dir={config.data_dir} needs --num_targets=2; its images "
            "are shifted and padded: leave out --shift and --pad"
        )
    return _PairRecords(
        data,
        data.images.shape[-3:-1],
        num_targets=2,
        num_examples=min(config.eval_size, len(data)),
        note="This evaluates the training records of --data_dir; for a test "
        "error name test records instead.",
    )


class _PairRecords(Pipeline):
    def training_batch(self, indices, step, seed):
        return self.evaluation_batch(indices)

    def evaluation_batch(self, indices):
        images, labels = self.take(indices)  # [B, 3, H, W, C] and [B, 2]
        first, second, merged = tf.unstack(unit_range(images), axis=1)
        labels = tf.unstack(labels, axis=1)
        return self._batch(merged, (first, second), labels)
