"""The record files of `shifted_records` on Apache Beam, by many machines.

Every worker calls `write_shard`, so that the files are the same, byte for
byte; each must see the folder and have this project on its path.
"""

import functools

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from common.errors import UserError
from input_data.generators import shifted_records


def generate(job, options=None):
    """Writes all files of a job that are not there yet.

    Args:
      job: `job.Job`.
      options: Beam's `PipelineOptions`.

    Raises:
      UserError: as `shifted_records.prepare`. What fails in a worker comes as
        the runner reports it.
    """
    _, missing = shifted_records.prepare(job)
    with beam.Pipeline(options=options) as pipeline:
        _ = (
            pipeline
            | beam.Create(missing)
            # Without it a runner may give all shards to one worker.
            | beam.Reshuffle()
            | beam.Map(functools.partial(shifted_records.write_shard, job))
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
