r"""Writes MNIST and MultiMNIST as the reference's record files.

  python input_data/mnist/mnist_shift.py --data_dir=DIR --split=train --shift=2
  python input_data/mnist/mnist_shift.py --data_dir=DIR --split=test \
      --multi_targets --shift=4 --pad=4 --num_pairs=1000 --max_shard=1000000

The first writes every image at all 25 offsets; the second 1,000 pairs of
overlapping digits for each image, in 10 files. Files that are there are kept,
so that after an interruption the same command makes what is missing. For more
than one machine see mnist_shift_beam.py.
"""

import os
import pathlib
import signal
import sys

# TensorFlow's start-up notes would bury the first lines of output.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
if __name__ == "__main__":
    # As a command it finds the project's packages from any folder.
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from absl import app, flags

from input_data.generators.job import Job
from old.ending import handling_signals, told
from old.errors import UserError
from old.flags import (
    define,
    parse_or_explain,
    refuse_arguments,
    settings_of,
)


def main(argv):
    """Runs the command; a user's error is one line and exit 1."""
    refuse_arguments(argv)
    # kill ends the job as Ctrl-C does: workers and half a file go with it.
    interrupt = handling_signals(signal.default_int_handler)
    with told("mnist_shift.py"), interrupt:
        try:
            from input_data.generators.shifted_records import generate

            job = settings_of(Job)
            paths = generate(job, flags.FLAGS.num_workers)
        except KeyboardInterrupt:
            raise UserError(
                "interrupted; the same command makes what is missing"
            ) from None
        print(f"{len(paths)} files, {paths[0]} to {paths[-1].name}")
        if not job.multi_targets and job.shift and "test" in job.split:
            print("Note: of single test digits readers expect --shift=0")


if __name__ == "__main__":
    define(Job)
    flags.mark_flag_as_required("data_dir")
    flags.DEFINE_integer(
        "num_workers", 1, "Processes that write files.", lower_bound=1
    )
    app.run(main, flags_parser=parse_or_explain)
