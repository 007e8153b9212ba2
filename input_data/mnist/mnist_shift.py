r"""Writes MNIST and MultiMNIST as the reference's record files.

  python input_data/mnist/mnist_shift.py --data_dir=DIR --split=train --shift=2
  python input_data/mnist/mnist_shift.py --data_dir=DIR --split=test \
      --multi_targets --shift=4 --pad=4 --num_pairs=1000 --max_shard=1000000

The first writes every image at all 25 offsets; the second 1,000 pairs of
overlapping digits for each image, in 10 files. Existing files are kept, so
that the same command continues after an interruption. For several machines see
mnist_shift_beam.py.
"""

import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
if __name__ == "__main__":
    # Finds the project's packages from any folder.
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from absl import flags

from common.errors import Interrupted, handling_signals
from common.flags import define, run, settings_of
from input_data.generators.job import Job


def main(_):
    """Runs the command."""
    from input_data.generators.shifted_records import generate

    job = settings_of(Job)
    with handling_signals(_stop):
        paths = generate(job, flags.FLAGS.num_workers)
    print(f"{len(paths)} files, {paths[0]} to {paths[-1].name}")
    if not job.multi_targets and job.shift and "test" in job.split:
        print("Note: readers expect --shift=0 of single test digits")


def _stop(number, frame):
    raise Interrupted("Interrupted; complete files are kept.", number)


if __name__ == "__main__":
    define(Job)
    flags.mark_flag_as_required("data_dir")
    flags.DEFINE_integer(
        "num_workers", 1, "Processes that write files.", lower_bound=1
    )
    run(main)
