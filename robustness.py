"""Tests what the field claims about capsules on trained networks.

  python robustness.py --dataset=mnist --data_dir=$DATA_DIR/mnist \
    --output_dir=/tmp/robust --num_trials=3 \
    capsule=/tmp/capsule{} baseline=/tmp/baseline{}

NAME=CHECKPOINT names a network. For your own model NAME is MODULE:NAME or
MODULE:NAME-LABEL, or --model=MODULE:NAME applies to the checkpoints that need
it. With --num_trials=N, {} in CHECKPOINT stands for 0 to N - 1. All networks
see the same images. Repeat the command to resume. Tests: docs/robustness.md.
"""

import dataclasses

from absl import flags as absl_flags

from common import flags, load_backend
from common.errors import optional_output
from common.files import make_folder, sole_process
from config import EVALUATION_FLAGS, Config


@optional_output()
def main(arguments):
    """Tests the networks that the arguments name."""
    options = absl_flags.FLAGS
    config = flags.settings_of(
        Config, train=False, num_processes=1, eval_size=options.num_examples
    )
    load_backend()
    from claims import measures, run
    from training import devices

    chosen = measures.choose(options.tests, options.severities)
    networks = run.named_checkpoints(arguments, config)
    if flags.is_external(config.model):  # other networks have other models
        config = dataclasses.replace(config, model=None)
    folder = make_folder(options.output_dir)
    options = options.steps, options.figure_format
    with devices.use(config), sole_process(folder, "testing"):
        run.run_tests(networks, config, folder, chosen, *options)


if __name__ == "__main__":
    names = {*EVALUATION_FLAGS, "hparams_override", "model", "num_trials"}
    flags.define(Config, names - {"crops", "eval_size"})
    absl_flags.DEFINE_enum(
        *("figure_format", None, ["pdf", "svg"]),
        "A second format of the figures, in addition to PNG.",
    )
    absl_flags.DEFINE_integer(
        "num_examples", 1000, "Number of first test images.", lower_bound=2
    )
    absl_flags.DEFINE_string(
        "output_dir", None, "Folder for the results.", required=True
    )
    absl_flags.DEFINE_list(
        *("severities", None),
        "Severities of every test. Default: those of docs/robustness.md.",
    )
    absl_flags.DEFINE_integer("steps", 40, "Steps of PGD.", lower_bound=1)
    absl_flags.DEFINE_list(
        "tests", None, "Tests, separated by commas. Default: all that fit."
    )
    flags.run(main, takes_arguments=True)
