"""Trains and evaluates capsule networks.

  python experiment.py --summary_dir=/tmp/digits --max_steps=300
  python experiment.py --summary_dir=/tmp/digits --train=false

README.md and docs/ show more commands; --help lists the flags.
"""

from absl import app

import devices
from old import flags
from old.ending import told
from old.errors import UserError
from old.startup import load_backend
from training.config import Config

# What takes long to import is imported in functions, so that --help and a
# wrong flag are answered at once.


def run(config, afterwards=None):
    """Does what the config asks for.

    Args:
      config: `Config`.
      afterwards: function, called at the end, where the job was computed.

    Returns:
      What `afterwards` gives; without, the `Score` of the one checkpoint or the
      ensemble that `config.checkpoint` names, None if it names none.

    Raises:
      UserError: for settings, data or checkpoints that do not work.
      Interrupted: if a training was stopped by a signal.
    """
    _require_consistent(config)
    load_backend()
    import keras

    with devices.use(config, "experiment.py") as on:
        keras.config.set_dtype_policy(config.dtype_policy)
        score = _run(config, on)
        return score if afterwards is None else afterwards()


def _require_consistent(config):
    """Raises UserError for flags that contradict each other."""
    is_ensemble = config.num_trials > 1
    if config.train and is_ensemble:
        raise UserError("--num_trials is for evaluation: add --train=false")
    if config.train and config.checkpoint is not None:
        raise UserError(
            "--checkpoint is for evaluation: add --train=false. Training "
            "resumes by itself from the newest checkpoint in "
            "<summary_dir>/train, or starts from --init_checkpoint."
        )
    if not config.train and config.init_checkpoint is not None:
        raise UserError(
            "--init_checkpoint is for training; to evaluate a checkpoint name "
            "it by --checkpoint"
        )
    if config.init_weights_only and config.init_checkpoint is None:
        raise UserError(
            "--init_weights_only says what a training takes of a checkpoint: "
            "name one by --init_checkpoint"
        )
    if is_ensemble and config.checkpoint is None:
        raise UserError("--num_trials needs --checkpoint with {} in it")


def _run(config, on):
    from evaluation import jobs

    if config.train:
        from training.train import train

        with jobs.evaluating_saved(config, on) as evaluate:
            train(config, on, evaluate)
        return None
    if config.num_trials > 1:
        _, score = jobs.evaluate_ensemble(config, on)
        return score
    if config.checkpoint is not None:
        return jobs.evaluate_once(config, on)
    jobs.evaluate_continuously(config, on)
    return None


def main(argv):
    """Runs the job of the flags; a user's error is one line and exit 1."""
    flags.refuse_arguments(argv)
    with told("experiment.py"):
        run(flags.settings_of(Config))


if __name__ == "__main__":
    flags.define(Config)
    app.run(main, flags_parser=flags.parse_or_explain)
