r"""Writes MNIST and MultiMNIST as record files in the reference's format.

  python input_data/mnist/mnist_shift.py --data_dir=DIR --split=train --shift=2
  python input_data/mnist/mnist_shift.py --data_dir=DIR --split=test \
      --multi_targets --shift=4 --pad=4 --num_pairs=1000 --max_shard=1000000

The first command writes every training image at all 25 offsets. The second
writes 1,000 pairs of overlapping digits for each test image, in 10 files.
Existing files are kept, so that the same command continues after an
interruption.
"""

import dataclasses
import pathlib
import sys

# Finds the project's packages from any folder.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from absl import flags

from common.flags import define, field, run, settings_of
from input_data.registry import Split


@dataclasses.dataclass(frozen=True)
class Job:
    """Which record files to write; the defaults are the reference's."""

    data_dir: str | None = field(
        None, "Folder for the record files; for mnist it holds the idx files."
    )
    dataset: str = field(
        "mnist", "mnist, or the embedded digits.", choices=("mnist", "digits")
    )
    split: str = field(
        Split.VALID_TRAIN.value,
        "Split to write. valid_train and valid_test are parts of the training "
        "images.",
        choices=tuple(split.value for split in Split),
    )
    shift: int = field(
        2,
        "Pixels by which a digit moves at most along each axis. Readers expect "
        "single test digits with a shift of 0.",
        at_least=0,
    )
    pad: int = field(0, "Black pixels added on each side.", at_least=0)
    multi_targets: bool = field(
        False, "Whether to merge pairs; else single digits take all offsets."
    )
    num_pairs: int = field(
        1000, "With --multi_targets: pairs for each image.", at_least=1
    )
    max_shard: int = field(
        0,
        "With --multi_targets: most records in a file; 0 writes one file.",
        at_least=0,
    )
    seed: int = field(
        0, "With --multi_targets: seed of pairs and offsets.", at_least=0
    )


def main(_):
    """Writes the files of the `Job` that the flags describe."""
    from input_data.shifted_records import generate  # slow to import

    generate(settings_of(Job), flags.FLAGS.num_workers)


if __name__ == "__main__":
    define(Job)
    flags.mark_flag_as_required("data_dir")
    flags.DEFINE_integer("num_workers", 1, "Writing processes.", lower_bound=1)
    run(main)
