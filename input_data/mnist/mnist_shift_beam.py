r"""mnist_shift.py on Apache Beam: the same files, written by many machines.

  pip install '.[beam]'
  python input_data/mnist/mnist_shift_beam.py --data_dir=DIR --split=train \
      --multi_targets --shift=4 --pad=4 --num_pairs=1000 --max_shard=100000 \
      --runner=DirectRunner

All flags unknown to mnist_shift.py are passed to Beam. All workers need access
to the folder --data_dir, and this project on their Python path.
"""

import functools
import pathlib
import sys

# Finds the project's packages from any folder.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from absl import app, flags

from common.errors import UserError, exit_on_user_error, user_errors
from common.flags import define, settings_of
from input_data.mnist.mnist_shift import Job


def main(argv):
    """Writes the files that do not exist yet; `argv[1:]` are Beam's flags."""
    # Imported here, so that --help waits for neither Beam nor TensorFlow.
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

    from input_data.shifted_records import prepare, write_shard

    def refuse_unknown(parser):
        _, unknown = parser.parse_known_args(argv[1:])
        if unknown:
            raise UserError(f"unknown flags: {' '.join(unknown)}")

    options = PipelineOptions(argv[1:])
    options.get_all_options(add_extra_args_fn=refuse_unknown)
    job = settings_of(Job)
    _, missing = prepare(job)
    with beam.Pipeline(options=options) as pipeline:
        write = beam.Map(functools.partial(write_shard, job))
        # Without Reshuffle a runner may give all files to one worker.
        _ = pipeline | beam.Create(missing) | beam.Reshuffle() | write


def _parse_flags(argv):
    with user_errors("flags"):
        return flags.FLAGS(argv, known_only=True)


if __name__ == "__main__":
    define(Job)
    flags.mark_flag_as_required("data_dir")
    with exit_on_user_error("mnist_shift_beam.py"):
        app.run(main, flags_parser=_parse_flags)
