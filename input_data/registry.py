"""Data sets by the name that `--dataset` takes.

A new data set is one line here, its file and its test. No data set is
imported, and so no TensorFlow, before one is asked for.
"""

import dataclasses
import importlib

from old.errors import UserError
from old.fields import did_you_mean

# The module of each, which has a `DataSet` named DATA_SET.
DATASETS = {
    "affnist": "input_data.datasets.affnist",
    "arrays": "input_data.datasets.arrays",
    "cifar10": "input_data.datasets.cifar10",
    "digits": "input_data.datasets.digits",
    "images": "input_data.datasets.image_folder",
    "mnist": "input_data.datasets.mnist",
    "norb": "input_data.datasets.norb",
    "svhn": "input_data.datasets.svhn",
}
# That which comes with the project: it needs no --data_dir.
EMBEDDED = "digits"
# tfds:NAME is the set of that name in TensorFlow Datasets.
TFDS_PREFIX = "tfds:"
_TFDS_MODULE = "input_data.datasets.tfds_images"
_ALL = 10**9  # images, more than there are


def is_valid_name(name):
    """Whether a data set has this name; TFDS's names are not looked up."""
    return name in DATASETS or (
        name.startswith(TFDS_PREFIX) and name != TFDS_PREFIX
    )


def is_standardized(name):
    """Whether a network sees its images standardised; see `DataSet`."""
    return name in DATASETS and find(name).photograph_size is not None


def valid_names():
    """All names, for a message."""
    return f"{', '.join(sorted(DATASETS))}, {TFDS_PREFIX}NAME"


def load(name, split, options):
    """The pipeline of one split of a data set.

    Args:
      name: string, a key of `DATASETS` or tfds:NAME.
      split: `splits.Split`.
      options: `Options`.

    Returns:
      `pipeline.Pipeline`.

    Raises:
      UserError: for an unknown name, two targets or options that are for
        other data sets, or files that are missing or damaged.
    """
    import tensorflow as tf

    # Beside a GPU, too, tf.data reads what pipelines keep on the CPU.
    with tf.device("CPU:0"):
        if options.pairs != "overlap":
            return _separate_pairs(name, split, options)
        data_set = find(name)
        _check_options(name, data_set, options)
        return data_set.load(split, options)


def _separate_pairs(name, split, options):
    """Pairs of the images of one object, whatever the data set."""
    from input_data.pairs import SeparatePairs

    if options.num_targets != 2:
        raise UserError(
            f"--pairs={options.pairs} puts two images together: add "
            "--num_targets=2"
        )
    if split.is_training:
        raise UserError(
            f"--pairs={options.pairs} is for evaluation: add --train=false"
        )
    if options.crops > 1:
        raise UserError(
            f"--crops={options.crops} is for single images, not for "
            f"--pairs={options.pairs}"
        )
    of_all = dataclasses.replace(
        options, num_targets=1, pairs="overlap", eval_size=_ALL
    )
    return SeparatePairs(load(name, split, of_all), options)


def find(name):
    """The `DataSet` of a name.

    Raises:
      UserError: for an unknown name.
    """
    if not is_valid_name(name):
        raise UserError(
            f"unknown data set {name!r}{did_you_mean(name, DATASETS)}; valid "
            f"names: {valid_names()}"
        )
    if name in DATASETS:
        return importlib.import_module(DATASETS[name]).DATA_SET
    tfds_images = importlib.import_module(_TFDS_MODULE)
    return tfds_images.data_set(name.removeprefix(TFDS_PREFIX))


def _check_options(name, data_set, options):
    if options.num_targets == 2 and not data_set.two_targets:
        raise UserError(
            f"--dataset={name} shows one object in each image: --num_targets=2 "
            "is for data on a black background, such as mnist, digits or images"
        )
    if options.image_size is not None and not data_set.resizes:
        raise UserError(
            f"--image_size is for --dataset=images and tfds:NAME: images of "
            f"{name} have one size"
        )
    if options.color and not data_set.colors:
        raise UserError(
            f"--color is for --dataset=images: images of {name} are as they are"
        )
    if options.crops > 1 and data_set.photograph_size is None:
        raise UserError(
            f"--crops={options.crops} does not apply to --dataset={name}: its "
            "images are seen whole"
        )
    for flag in ("shift", "pad", "distort", "augment"):
        value = getattr(options, flag)  # a shift of 0 is given, too
        if value is None or value is False:
            continue
        if data_set.photograph_size is not None:
            raise UserError(f"--{flag} does not apply to --dataset={name}")
        if options.num_targets == 2 and flag in ("distort", "augment"):
            raise UserError(
                f"--{flag} is for one target, not for --num_targets=2"
            )
