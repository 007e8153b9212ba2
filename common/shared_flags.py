"""Flags that several commands take: which network, which data."""

import dataclasses

from absl import flags

from input_data.registry import is_valid_name, valid_names
from models.registry import MODELS
from training.config import Config

# The flags count as those of the command that defines them, for its --help.
flags.disclaim_key_flags()


def define():
    """Defines the flags, named and with defaults as in `Config`."""
    flags.DEFINE_bool(
        "color",
        Config.color,
        "With --dataset=images: whether images keep their colours; else they "
        "become grey.",
    )
    flags.DEFINE_string(
        "data_dir",
        Config.data_dir,
        "Folder with the files of the data set; or PREFIX.tfrecords@10, record "
        "files of pairs in 10 shards, for two targets.",
    )
    flags.DEFINE_string(
        "dataset",
        Config.dataset,
        f"Data set: {valid_names()}, where tfds:NAME is an image "
        "classification set of TensorFlow Datasets and images is a folder with "
        "one sub-folder for each class. Default: mnist if --data_dir is given, "
        "else the embedded digits.",
    )
    flags.register_validator(
        "dataset",
        lambda name: name is None or is_valid_name(name),
        f"should be one of {valid_names()}",
    )
    flags.DEFINE_bool(
        "distort",
        Config.distort,
        "Whether to crop digits by 4 pixels: in training at random, and turned "
        "by up to 15 degrees; else from the middle.",
    )
    flags.DEFINE_integer(
        "eval_size",
        Config.eval_size,
        "Examples to evaluate: at most the images or records there are; pairs "
        "that are made on the fly may be any number.",
        lower_bound=1,
    )
    flags.DEFINE_string(
        "hparams_override",
        Config.hparams_override,
        "Hyper-parameters as name=value,name=value. preset=svhn stands for the "
        "paper's smaller network for SVHN; values given beside it go before "
        "its own.",
    )
    flags.DEFINE_integer(
        "image_size",
        Config.image_size,
        "With --dataset=images and tfds:NAME: height and width, in pixels, to "
        "which images are resized. Default: as they are, if all have one size.",
        lower_bound=1,
    )
    flags.DEFINE_enum(
        "model",
        Config.model,
        sorted(MODELS),
        "Model. Default: capsule, in evaluation the checkpoint's.",
    )
    flags.DEFINE_integer(
        "num_targets",
        Config.num_targets,
        "Objects in each image, 1 or 2. Default: 1, in evaluation the "
        "checkpoint's.",
        lower_bound=1,
        upper_bound=2,
    )
    flags.DEFINE_integer(
        "pad",
        Config.pad,
        "Black pixels to add on each side of a digit. Default: 0, with two "
        "targets 4.",
        lower_bound=0,
    )
    flags.DEFINE_integer(
        "seed",
        Config.seed,
        "Seed of the initial weights, the batches and the test pairs.",
        lower_bound=0,
        upper_bound=2**32 - 1,
    )
    flags.DEFINE_integer(
        "shift",
        Config.shift,
        "Pixels by which a training image moves at most, along each axis; of "
        "record files the shift in their name. Default: 2 for digits and "
        "mnist, with two targets 4, else 0.",
        lower_bound=0,
    )
    flags.DEFINE_bool(
        "validate",
        Config.validate,
        "Whether training leaves out a part of the training images, and "
        "evaluation uses exactly that part.",
    )


def config_of_flags(**others):
    """The `Config` of all flags that are defined.

    Args:
      **others: values of `Config` that no flag of this command gives.
    """
    names = [field.name for field in dataclasses.fields(Config)]
    given = {
        name: flags.FLAGS[name].value for name in names if name in flags.FLAGS
    }
    return Config(**given, **others)
