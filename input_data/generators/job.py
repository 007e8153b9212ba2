"""The flags of mnist_shift.py; their defaults are the reference's."""

import dataclasses

from common.flags import field
from input_data.registry import Split


@dataclasses.dataclass(frozen=True)
class Job:
    """Which record files of MNIST or MultiMNIST to write."""

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
        "Which images; the two splits of validation divide the training "
        "images.",
        choices=tuple(split.value for split in Split),
    )
    shift: int = field(
        2,
        "Pixels by which a digit moves at most along each axis. Readers expect "
        "single test digits with 0.",
        at_least=0,
    )
    pad: int = field(0, "Black pixels added on each side.", at_least=0)
    multi_targets: bool = field(
        False,
        "Whether to merge pairs of digits; else single digits are written at "
        "all offsets.",
    )
    num_pairs: int = field(
        1000, "With --multi_targets: pairs for each image.", at_least=1
    )
    max_shard: int = field(
        0,
        "With --multi_targets: largest number of records in a file; 0 writes "
        "one file.",
        at_least=0,
    )
    seed: int = field(
        0,
        "With --multi_targets: seed of the pairs and their offsets.",
        at_least=0,
    )
