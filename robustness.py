"""Tests what the field claims about capsules on trained networks.

  python robustness.py --dataset=mnist --data_dir=$DATA_DIR/mnist \
    --output_dir=/tmp/robust --num_trials=3 \
    capsule=/tmp/capsule{} baseline=/tmp/baseline{}

NAME=CHECKPOINT names a network, for your own model MODULE:CLASS. With
--num_trials=N, {} in CHECKPOINT stands for 0 to N - 1. All networks see the
same images. Repeat the command to resume. Tests: see docs/robustness.md.
"""

import dataclasses

from absl import flags as absl_flags

from common import flags, load_backend
from common.errors import UserError
from common.files import make_folder
from config import DATA_FLAGS, Config


def members(arguments, config):
    """Yields (name, checkpoint) of the texts NAME=CHECKPOINT."""
    if not arguments:
        raise UserError("give NAME=CHECKPOINT, once for each network")
    names = set()
    for argument in arguments:
        name, _, template = argument.partition("=")
        if not template or name in names:
            raise UserError(f"{argument} is not a new NAME=CHECKPOINT")
        names.add(name)
        for path in dataclasses.replace(config, checkpoint=template).members:
            yield name, path


def main(arguments):
    """Tests the networks that the arguments name."""
    options = absl_flags.FLAGS
    output_dir = make_folder(options.output_dir)
    config = flags.settings_of(Config, train=False, num_processes=1)
    config = dataclasses.replace(config, eval_size=options.num_examples)
    load_backend()
    from claims import run
    from training import devices

    networks = list(members(arguments, config))
    with devices.use(config):
        run.test_all(networks, config, output_dir, options.tests, options.steps)


if __name__ == "__main__":
    names = "hparams_override", "model", "num_trials"
    flags.define(Config, (*(set(DATA_FLAGS) - {"eval_size"}), *names))
    absl_flags.DEFINE_string(
        "output_dir", None, "Folder for the results.", required=True
    )
    absl_flags.DEFINE_list(
        "tests", None, "Tests, separated by commas. Default: all that fit."
    )
    absl_flags.DEFINE_integer(
        "num_examples",
        1000,
        "Number of test images, the first ones.",
        lower_bound=1,
    )
    absl_flags.DEFINE_integer("steps", 40, "Steps of PGD.", lower_bound=1)
    flags.run(main, takes_arguments=True)
