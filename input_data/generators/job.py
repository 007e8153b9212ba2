"""What record files of MNIST are to be written: flags, defaults and bounds."""

import dataclasses

from input_data.splits import Split
from old.fields import field


@dataclasses.dataclass(frozen=True)
class Job:
    """The flags of mnist_shift.py; their defaults are the reference's."""

    data_dir: str | None = field(
        None,
        "Folder for the record files; with --dataset=mnist it holds the idx "
        "files.",
    )
    dataset: str = field(
        "mnist", "mnist, or the embedded digits.", choices=("mnist", "digits")
    )
    split: str = field(
        Split.VALID_TRAIN.value,
        "Which images; the two for validation divide the training images.",
        choices=tuple(split.value for split in Split),
    )
    shift: int = field(
        2,
        "Pixels that a digit moves at most along each axis. Readers expect "
        "single test digits with 0.",
        at_least=0,
        at_most=10**5,
    )
    pad: int = field(
        0, "Black pixels to add on each side.", at_least=0, at_most=10**5
    )
    multi_targets: bool = field(
        False,
        "Whether to merge pairs of digits; else single digits are written at "
        "all offsets.",
    )
    num_pairs: int = field(
        1000,
        "With --multi_targets: pairs for each image.",
        at_least=1,
        at_most=10**9,
    )
    max_shard: int = field(
        0,
        "With --multi_targets: records in a file, at most; 0: all in one.",
        at_least=0,
    )
    seed: int = field(
        0,
        "With --multi_targets: fixes partners and offsets.",
        at_least=0,
        at_most=2**63 - 1,
    )
