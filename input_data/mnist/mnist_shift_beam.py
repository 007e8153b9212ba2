r"""mnist_shift on Apache Beam: the same files, made by many machines.

  pip install '.[beam]'
  python input_data/mnist/mnist_shift_beam.py --data_dir=DIR --split=train \
      --multi_targets --shift=4 --pad=4 --num_pairs=1000 --max_shard=100000 \
      --runner=DirectRunner

Flags that are not mnist_shift's go to Beam. Every worker calls `write_shard`,
so that the files are those of mnist_shift, byte for byte; each worker must
see DIR and have this project on its path.
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

try:
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions
except ImportError as error:
    if __name__ != "__main__":
        raise
    sys.exit(
        f"mnist_shift_beam.py: {error}: install Apache Beam by "
        "pip install '.[beam]'"
    )
from absl import app, flags

from common import durable
from common.errors import UserError
from input_data.mnist import mnist_shift


def generate(job, options=None):
    """Writes all files of a job that are not there yet.

    Args:
      job: `mnist_shift.Job`.
      options: Beam's `PipelineOptions`.

    Raises:
      UserError: if the job's settings or images do not work, or files are
        there with other contents. What fails in a worker comes as the runner
        reports it.
    """
    durable.make_folder(job.data_dir)
    missing = mnist_shift.missing_shards(job, mnist_shift.plan_shards(job))
    with beam.Pipeline(options=options) as pipeline:
        _ = (
            pipeline
            | beam.Create(missing)
            # Without it a runner may give all shards to one worker.
            | beam.Reshuffle()
            | beam.Map(functools.partial(mnist_shift.write_shard, job))
        )


def beam_options(arguments):
    """The `PipelineOptions` of command-line arguments.

    Raises:
      UserError: if Beam does not know one, which it would pass over.
    """

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


def main(argv):
    """Runs the command; argv has the flags for Beam."""
    try:
        generate(mnist_shift.job_of_flags(), beam_options(argv[1:]))
    except UserError as error:
        sys.exit(f"mnist_shift_beam.py: {error}")


if __name__ == "__main__":
    mnist_shift.define_flags()
    app.run(main, flags_parser=lambda argv: flags.FLAGS(argv, known_only=True))
