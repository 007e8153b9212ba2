"""Data sets by the name that `--dataset` takes, and their splits.

Only `load` imports TensorFlow and the modules of data sets.
"""

import dataclasses
import enum
import importlib
import re
import sys

from common.errors import UserError
from common.flags import import_named, is_external, require_known
from input_data.stored import digest


class Split(enum.Enum):
    """Parts of a data set, named as in the reference's mnist_shift.py."""

    TRAIN = "train"
    TEST = "test"
    VALID_TRAIN = "valid_train"
    VALID_TEST = "valid_test"

    @property
    def is_training(self):
        return self in (Split.TRAIN, Split.VALID_TRAIN)

    @property
    def is_held_out(self):
        """Whether this is VALID_TRAIN or VALID_TEST, used in validation."""
        return self in (Split.VALID_TRAIN, Split.VALID_TEST)


def select(split, images, num_held_out=None):
    """The images of a split.

    `images` are `LabeledImages`: all test images for TEST, all training images
    for other splits. VALID_TEST is the last `num_held_out` training images, by
    default a fifth but at least 1 and at most 10,000 (the reference's number),
    VALID_TRAIN the others. Both get a digest of all `images` as a fingerprint.
    """
    if not split.is_held_out:
        return images
    count = num_held_out or min(10_000, max(1, len(images) // 5))
    if len(images) <= count:
        raise UserError("--validate needs more training images")
    # The first division counts: the test images, if they are divided, too.
    if "validation_images" not in images.fingerprints:
        images.fingerprints["validation_images"] = digest(images.images)[:16]
    return images[:-count] if split.is_training else images[-count:]


@dataclasses.dataclass(frozen=True)
class DataSet:
    """A data set and the settings that apply to it."""

    # In `datasets`, with `load(split, config)`; or MODULE:FUNCTION.
    module: str
    needs_data_dir: bool = False  # there are no images without `data_dir`
    shift: int = 0  # default of --shift for images of one object, in pixels
    # Two of its images can overlap, as their margins are black.
    two_targets: bool = True
    resizes: bool = False  # `image_size` and `resize` apply
    colors: bool = False  # `color` applies
    # (height, width) of photographs, of which networks see standardized crops.
    # None for whole images with pixels in [0, 1], which can be augmented.
    photograph_size: tuple[int, int] | None = None
    # Height and width of a digit if images are single white digits on black.
    # Drawings are reduced to this size, then brought to MNIST's size and place.
    digit_size: int | None = None


# The reference's MNIST records: training digits shifted by up to 2 pixels.
_MNIST_SHIFT = 2

DATASETS = {
    "affnist": DataSet(
        "affnist", needs_data_dir=True, two_targets=False, digit_size=20
    ),
    "arrays": DataSet("arrays", needs_data_dir=True),
    "cifar10": DataSet("cifar10", two_targets=False, photograph_size=(32, 32)),
    "digits": DataSet("digits", shift=_MNIST_SHIFT, digit_size=8),
    "fashion_mnist": DataSet("fashion_mnist", shift=_MNIST_SHIFT),
    "images": DataSet(
        "image_folder", needs_data_dir=True, resizes=True, colors=True
    ),
    "mnist": DataSet("mnist", shift=_MNIST_SHIFT, digit_size=20),
    "norb": DataSet("norb", two_targets=False, photograph_size=(48, 48)),
    "svhn": DataSet("svhn", two_targets=False),
}
# The data set that comes with the project and needs no --data_dir.
BUNDLED = "digits"
# tfds:NAME is the set NAME of TensorFlow Datasets.
TFDS_PREFIX = "tfds:"
# Section 6 of the paper: digits on 36x36, shifted by up to 4 pixels.
PAIR_PAD = PAIR_SHIFT = 4


def find_data_set(name):
    """The `DataSet` of a name; raises UserError for an unknown one."""
    if name in DATASETS:
        return DATASETS[name]
    if ":" not in name or name == TFDS_PREFIX:
        others = f"{TFDS_PREFIX}NAME", "MODULE:FUNCTION"
        require_known("--dataset", name, [*DATASETS, *others])
    if not name.startswith(TFDS_PREFIX):
        return DataSet(name)
    size = 20 if name.split(":")[1] == "mnist" else None
    return DataSet("tfds_images", resizes=True, digit_size=size)


def shards_of(data_dir):
    """The match of PREFIX@COUNT, which names COUNT record files, or None."""
    return re.fullmatch("(.+)@([1-9][0-9]*)", str(data_dir))


def fill(config, **defaults):
    """A `Config` in which `defaults` replace None."""
    missing = {k: v for k, v in defaults.items() if getattr(config, k) is None}
    return dataclasses.replace(config, **missing)


def with_data_defaults(config):
    """A `Config` with its data set's defaults; raises UserError as `load`."""
    # The reference's commands have no --dataset for MNIST.
    dataset = BUNDLED if config.data_dir is None else "mnist"
    config = fill(config, dataset=dataset, num_targets=1)
    data_set = find_data_set(config.dataset)
    shards = shards_of(config.data_dir)
    _check(config, data_set, shards)
    pad = 0
    shift = 0 if config.augment else data_set.shift
    if shards:  # of images that are shifted and padded
        shift = 0
    elif config.num_targets == 2:
        pad = PAIR_PAD if config.pairs == "overlap" else 0
        shift = PAIR_SHIFT
    resize = "pad" if data_set.resizes else None
    defaults = {"color": False, "distort": False, "resize": resize}
    return fill(config, pad=pad, shift=shift, **defaults)


def _check(config, data_set, shards):
    """Raises UserError for settings that do not apply to the data set."""
    photographs = data_set.photograph_size is not None
    name, two_targets = config.dataset, config.num_targets == 2
    if config.pairs != "overlap":
        if not two_targets or config.train or config.crops > 1:
            raise UserError(
                f"--pairs={config.pairs} needs --num_targets=2 and "
                "--train=false, and does not go with --crops"
            )
        two_targets = False  # as single images are read
    refused = {
        "data_dir": config.data_dir and name == BUNDLED,
        "num_targets": two_targets and not data_set.two_targets,
        "image_size": config.image_size and not data_set.resizes,
        "resize": config.resize and not data_set.resizes,
        "color": config.color and not data_set.colors,
        "crops": config.crops > 1 and not photographs,
        "viewpoints": config.viewpoints and name != "norb",
        "shift": config.shift and (photographs or shards),
        "pad": config.pad and photographs,
        "distort": config.distort and (photographs or two_targets),
        "augment": config.augment and (photographs or two_targets),
        "crop_area": config.crop_area < 1 and (photographs or two_targets),
        "flip": config.flip and (photographs or two_targets),
    }
    for flag, is_refused in refused.items():
        if is_refused:
            raise UserError(
                f"--{flag}={getattr(config, flag)} does not apply to "
                f"--dataset={name} with --num_targets={config.num_targets}"
            )


def load(config, train):
    """Loads the `Pipeline` of a `Config`, or raises UserError."""
    # Imported here, so that flags are parsed without TensorFlow.
    import tensorflow as tf

    from input_data.pairs import SeparatePairs
    from input_data.pipeline import Pipeline

    config = with_data_defaults(config)
    # tf.data reads the images from the CPU's memory, even if there is a GPU.
    with tf.device("CPU:0"):
        if config.pairs != "overlap":
            singles = dataclasses.replace(
                config, num_targets=1, pairs="overlap", eval_size=sys.maxsize
            )
            return SeparatePairs(load(singles, train), config)
        data_set = find_data_set(config.dataset)
        if data_set.needs_data_dir and config.data_dir is None:
            raise UserError(
                f"--dataset={config.dataset} needs --data_dir, see docs/data.md"
            )
        name = data_set.module
        if is_external(name):
            read = import_named("--dataset", name)
        else:
            read = importlib.import_module(f"input_data.datasets.{name}").load
        if config.validate:
            split = Split.VALID_TRAIN if train else Split.VALID_TEST
        else:
            split = Split.TRAIN if train else Split.TEST
        pipeline = read(split, config)
    if not isinstance(pipeline, Pipeline):
        kind = type(pipeline).__name__
        raise UserError(f"--dataset={name} must give a Pipeline, not {kind}")
    return pipeline
