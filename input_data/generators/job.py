"""What record files of MNIST are to be written, and the flags that say it.

Imports nothing heavy: `--help` comes at once.
"""

import dataclasses

from absl import flags

from input_data.splits import Split

DATASETS = ("mnist", "digits")


@dataclasses.dataclass(frozen=True)
class Job:
    """What is to be written.

    Attributes:
      data_dir: path of the folder for the record files, which for MNIST
        holds the idx files too.
      dataset: string, one of `DATASETS`.
      split: `Split`.
      shift: int, pixels that a digit moves at most along each axis.
      pad: int, black pixels added on each side before.
      multi_targets: bool, two digits in each record; else one.
      num_pairs: int, with two digits: pairs for each image.
      max_shard: int, with two digits: records in a file, at most; 0 for all
        in one file.
      seed: int, with two digits: fixes partners and offsets.
    """

    data_dir: str
    dataset: str = "mnist"
    split: Split = Split.TRAIN
    shift: int = 2
    pad: int = 0
    multi_targets: bool = False
    num_pairs: int = 1000
    max_shard: int = 0
    seed: int = 0


def define_flags():
    """Defines the flags of the command; their defaults are the reference's."""
    flags.DEFINE_string(
        "data_dir",
        None,
        "Folder for the record files; with --dataset=mnist it holds the idx "
        "files.",
        required=True,
    )
    flags.DEFINE_enum(
        "dataset", Job.dataset, DATASETS, "mnist, or the embedded digits."
    )
    flags.DEFINE_enum(
        "split",
        Split.VALID_TRAIN.value,
        [split.value for split in Split],
        "Which images; the two for validation divide the training images.",
    )
    flags.DEFINE_integer(
        "shift",
        Job.shift,
        "Pixels that a digit moves at most along each axis. Readers expect "
        "single test digits with 0.",
        lower_bound=0,
    )
    flags.DEFINE_integer(
        "pad", Job.pad, "Black pixels to add on each side.", lower_bound=0
    )
    flags.DEFINE_bool(
        "multi_targets",
        Job.multi_targets,
        "Whether to merge pairs of digits; else single digits are written at "
        "all offsets.",
    )
    flags.DEFINE_integer(
        "num_pairs",
        Job.num_pairs,
        "With --multi_targets: pairs for each image.",
        lower_bound=1,
    )
    flags.DEFINE_integer(
        "max_shard",
        Job.max_shard,
        "With --multi_targets: records in a file, at most; 0: all in one.",
        lower_bound=0,
    )
    flags.DEFINE_integer(
        "seed",
        Job.seed,
        "With --multi_targets: fixes partners and offsets.",
        lower_bound=0,
        upper_bound=2**63 - 1,
    )


def job_of_flags():
    """The `Job` that the flags describe."""
    names = [field.name for field in dataclasses.fields(Job)]
    values = {name: flags.FLAGS[name].value for name in names}
    return Job(**{**values, "split": Split(values["split"])})
