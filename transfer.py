"""Tests models that were trained on one object on two, and draws the result.

  python transfer.py --output_dir=/tmp/transfer --num_trials=3 \
    shared_capsule=/tmp/shared{}/train/model.ckpt-5628 \
    pooling=/tmp/pooling{}/train/model.ckpt-9380

Each argument is a name for the figures and a checkpoint; {} in it stands for
the numbers of several runs. All are evaluated on the same test images and on
the same pairs of them, put together without overlap by --pairs and --seed.
To --output_dir go transfer.json, all counts and the first predictions;
transfer_accuracy.png, accuracies with 95% confidence intervals; and
transfer_pairs.png. Files of the same names there are replaced.
"""

import json

from absl import app, flags

import devices
import old.flags
from input_data.options import Options
from old.ending import told
from old.errors import UserError
from old.fields import meanings
from old.startup import load_backend
from training.config import Config

_SHARED_FLAGS = (
    *(name for name in meanings(Options) if name != "num_targets"),
    "num_trials",
)


def define_flags():
    """Defines the flags: of this command, so when it runs as one."""
    old.flags.define(Config, _SHARED_FLAGS)
    flags.FLAGS.set_default("pairs", "below")
    flags.DEFINE_integer(
        "num_examples", 8, "Pairs in the figure.", lower_bound=1
    )
    flags.DEFINE_string(
        "output_dir", None, "Folder for the files.", required=True
    )


def run(models, config, output_dir, num_examples):
    """Measures, draws and writes.

    Args:
      models: dict, as `models_of` gives it.
      config: `Config`: data and pairs.
      output_dir: path of a folder, made if it is not there.
      num_examples: int, pairs in the figure.

    Returns:
      List of the paths of the files.

    Raises:
      UserError: for checkpoints or data that do not work, or a folder that
        cannot be written.
    """
    from evaluation.transfer import measure
    from old.durable import make_folder, write_files
    from visualisation import transfer

    folder = make_folder(output_dir)
    results, images = measure(config, models, num_examples)
    # First what took long.
    text = json.dumps(results, indent=1).encode()
    paths = write_files(folder, {"transfer.json": text})
    return paths + write_files(folder, transfer.make(results, images))


def models_of(arguments, num_trials):
    """Dict from name to paths of checkpoints, one for each trial.

    Args:
      arguments: list of strings, NAME=CHECKPOINT.
      num_trials: int, numbers that take the place of {} in a checkpoint.

    Raises:
      UserError: for an argument of another form, a name that is given twice,
        or several trials of one checkpoint.
    """
    models = {}
    for argument in arguments:
        name, equals, checkpoint = argument.partition("=")
        if not (name and equals and checkpoint):
            raise UserError(f"{argument} is not of the form NAME=CHECKPOINT")
        if name in models:
            raise UserError(f"{name} is given twice")
        models[name] = Config(
            checkpoint=checkpoint, num_trials=num_trials
        ).members
    return models


def main(argv):
    """Runs the experiment of the arguments; a user's error is one line."""
    if len(argv) < 2:
        raise app.UsageError("name models to compare: NAME=CHECKPOINT")
    with told("transfer.py"):
        config = old.flags.settings_of(Config, train=False)
        models = models_of(argv[1:], config.num_trials)
        load_backend()
        with devices.use(devices.Settings(num_processes=1), "transfer.py"):
            paths = run(
                models,
                config,
                flags.FLAGS.output_dir,
                flags.FLAGS.num_examples,
            )
        print(*paths, sep="\n")


if __name__ == "__main__":
    define_flags()
    app.run(main, flags_parser=old.flags.parse_or_explain)
