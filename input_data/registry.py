"""Data sets by the name that `--dataset` takes."""

from common.errors import UserError
from input_data.affnist import affnist
from input_data.cifar10 import cifar10
from input_data.digits import digits
from input_data.images import image_folder
from input_data.mnist import mnist
from input_data.norb import norb
from input_data.options import Options
from input_data.svhn import svhn
from input_data.tfds import tfds_images

# Each function takes (split, options) and returns a Pipeline.
DATASETS = {
    "affnist": affnist.load,
    "cifar10": cifar10.load,
    "digits": digits.load,
    "images": image_folder.load,
    "mnist": mnist.load,
    "norb": norb.load,
    "svhn": svhn.load,
}
# tfds:NAME is the set of that name in TensorFlow Datasets.
TFDS_PREFIX = "tfds:"
# Photographs have no black background, and affNIST's digits take up all of
# the image: two of them cannot overlap as the paper's section 6 has it.
SINGLE_TARGET = ("affnist", "cifar10", "norb", "svhn")
# Those that `shift`, `pad`, `distort` and `augment` do not apply to.
_FIXED_CROPS = ("cifar10", "norb")


def load(name, split, options):
    """The pipeline of one split of a data set.

    Args:
      name: string, a key of `DATASETS` or tfds:NAME.
      split: `splits.Split`.
      options: `Options`.

    Returns:
      `pipeline.Pipeline`.

    Raises:
      UserError: for an unknown name, a number of targets that is not 1 or 2
        or not for this data set, options that are for other data sets, or
        files that are missing or damaged.
    """
    if not is_valid_name(name):
        raise UserError(
            f"unknown data set {name!r}; valid names: {valid_names()}"
        )
    _check_options(name, options)
    if name.startswith(TFDS_PREFIX):
        return tfds_images.load(name.removeprefix(TFDS_PREFIX), split, options)
    return DATASETS[name](split, options)


def is_valid_name(name):
    """Whether a data set has this name; TFDS's names are not looked up."""
    return name in DATASETS or (
        name.startswith(TFDS_PREFIX) and name != TFDS_PREFIX
    )


def valid_names():
    """All names, for a message."""
    return f"{', '.join(sorted(DATASETS))}, {TFDS_PREFIX}NAME"


def _check_options(name, options):
    if options.num_targets not in (1, 2):
        raise UserError(f"--num_targets={options.num_targets} must be 1 or 2")
    if options.num_targets == 2 and name in SINGLE_TARGET:
        raise UserError(
            f"--dataset={name} shows one object in each image: --num_targets=2 "
            "is for data on a black background, such as mnist, digits or images"
        )
    resizable = name == "images" or name.startswith(TFDS_PREFIX)
    if options.image_size is not None and not resizable:
        raise UserError(
            f"--image_size is for --dataset=images and tfds:NAME: images of "
            f"{name} have one size"
        )
    if options.color and name != "images":
        raise UserError(
            f"--color is for --dataset=images: images of {name} are as they are"
        )
    if name in _FIXED_CROPS:
        for flag in ("shift", "pad", "distort", "augment"):
            if getattr(options, flag) != getattr(Options, flag):
                raise UserError(f"--{flag} does not apply to --dataset={name}")
