"""Trains and evaluates capsule networks.

  python experiment.py --summary_dir=/tmp/digits --max_steps=300
  python experiment.py --summary_dir=/tmp/digits --train=false

README.md and docs/ show more commands; --help lists the flags.
"""

import contextlib

from common import flags, load_backend
from common.errors import UserError
from config import Config

# Functions import the modules that need TensorFlow, so that --help and a wrong
# flag are answered at once.


def run(config):
    """Trains or evaluates.

    Returns:
      The `Score` of the checkpoint or ensemble that `config.checkpoint` names,
      else None.

    Raises:
      UserError: for settings, data or checkpoints that cannot be used.
      Interrupted: if a signal stopped a training.
    """
    _require_consistent(config)
    load_backend()
    import keras

    from training import devices

    with devices.use(config) as strategy, contextlib.ExitStack() as stack:
        before = keras.config.dtype_policy()
        stack.callback(keras.config.set_dtype_policy, before)
        keras.config.set_dtype_policy(config.dtype_policy)
        if config.train:
            _train(config, strategy)
            return None
        from training import evaluate

        if config.checkpoint is None and config.num_trials == 1:
            return evaluate.evaluate_continuously(config, strategy)
        return evaluate.evaluate_checkpoints(config, strategy)


def _train(config, strategy):
    from training.train import train

    if config.eval_every is None:
        train(config, strategy)
        return
    from training.evaluate import evaluations

    with evaluations(config, strategy) as evaluate:
        train(config, strategy, evaluate)


def _require_consistent(config):
    """Raises UserError for flags that contradict each other."""
    if config.train and (config.checkpoint or config.num_trials > 1):
        raise UserError(
            "--checkpoint and --num_trials are for evaluation: add "
            "--train=false. A training starts from --init_checkpoint"
        )
    if not config.summary_dir and (config.train or config.checkpoint is None):
        raise UserError(
            "--summary_dir is required; an evaluation can have --checkpoint "
            "instead"
        )


def main(arguments):
    """Runs the job that the flags describe."""
    run(flags.settings_of(Config))


if __name__ == "__main__":
    flags.define(Config)
    flags.run(main)
