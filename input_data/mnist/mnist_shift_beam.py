r"""mnist_shift.py on Apache Beam: the same files, made by many machines.

  pip install '.[beam]'
  python input_data/mnist/mnist_shift_beam.py --data_dir=DIR --split=train \
      --multi_targets --shift=4 --pad=4 --num_pairs=1000 --max_shard=100000 \
      --runner=DirectRunner

Flags that are not mnist_shift's go to Beam.
"""

import functools
import os
import pathlib
import sys

# TensorFlow's start-up notes would bury the first lines of output.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
if __name__ == "__main__":
    # As a command it finds the project's packages from any folder.
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from absl import app, flags

from common.ending import told
from common.errors import UserError
from common.flags import define, parse_or_explain, settings_of
from input_data.generators.job import Job


def main(argv):
    """Runs the command; argv has the flags for Beam."""
    with told("mnist_shift_beam.py"):
        try:
            from input_data.generators import beam
        except ImportError as error:
            raise UserError(
                f"{error}: install Apache Beam by pip install '.[beam]'"
            ) from error
        beam.generate(settings_of(Job), beam.beam_options(argv[1:]))


if __name__ == "__main__":
    define(Job)
    flags.mark_flag_as_required("data_dir")
    app.run(
        main,
        flags_parser=functools.partial(parse_or_explain, known_only=True),
    )
