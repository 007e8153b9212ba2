r"""mnist_shift.py on Apache Beam: the same files, made by many machines.

  pip install '.[beam]'
  python input_data/mnist/mnist_shift_beam.py --data_dir=DIR --split=train \
      --multi_targets --shift=4 --pad=4 --num_pairs=1000 --max_shard=100000 \
      --runner=DirectRunner

Flags that are not mnist_shift's go to Beam. Every worker calls
`shifted_records.write_shard`, so that the files are the same, byte for byte;
each must see the folder and have this project on its path.
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

from input_data.generators.job import Job
from old.ending import told
from old.errors import UserError
from old.flags import define, parse_or_explain, settings_of


def main(argv):
    """Runs the command; argv has the flags for Beam."""
    with told("mnist_shift_beam.py"):
        try:
            options = beam_options(argv[1:])
        except ImportError as error:
            raise UserError(
                f"{error}: install Apache Beam by pip install '.[beam]'"
            ) from error
        generate(settings_of(Job), options)


def beam_options(arguments):
    """The `PipelineOptions` of command-line arguments.

    Raises:
      ImportError: if Beam is not installed.
      UserError: if Beam does not know one, which it would pass over.
    """
    from apache_beam.options.pipeline_options import PipelineOptions

    def refuse_unknown(parser):
        _, unknown = parser.parse_known_args(arguments)
        if unknown:
            raise UserError(
                "flags of neither mnist_shift nor Apache Beam: "
                + " ".join(unknown)
            )

    options = PipelineOptions(arguments)
    options.get_all_options(add_extra_args_fn=refuse_unknown)
    return options


def generate(job, options=None):
    """Writes all files of a job that are not there yet.

    Args:
      job: `Job`.
      options: Beam's `PipelineOptions`.

    Raises:
      UserError: as `shifted_records.prepare`. What fails in a worker comes as
        the runner reports it.
    """
    import apache_beam as beam

    from input_data.generators import shifted_records

    _, missing = shifted_records.prepare(job)
    with beam.Pipeline(options=options) as pipeline:
        _ = (
            pipeline
            | beam.Create(missing)
            # Without it a runner may give all shards to one worker.
            | beam.Reshuffle()
            | beam.Map(functools.partial(shifted_records.write_shard, job))
        )


if __name__ == "__main__":
    define(Job)
    flags.mark_flag_as_required("data_dir")
    app.run(
        main,
        flags_parser=functools.partial(parse_or_explain, known_only=True),
    )
