"""Trains and evaluates capsule networks.

  python experiment.py --summary_dir=/tmp/digits --max_steps=300
  python experiment.py --summary_dir=/tmp/digits --train=false

README.md and docs/ show more commands; --help lists the flags.
"""

import contextlib

from common import flags, load_backend
from config import Config
from resolve import check_job

# TensorFlow is imported in functions, so that --help is answered at once.


def run(config):
    """Trains or evaluates; returns the `Score` if --checkpoint is set, or None.

    Raises UserError for settings, data or checkpoints that cannot be used, and
    Interrupted if a signal stopped a training.
    """
    check_job(config)
    load_backend()
    import keras

    from training import devices, ensemble, evaluate, train

    with devices.use(config) as strategy, contextlib.ExitStack() as stack:
        before = keras.config.dtype_policy()
        stack.callback(keras.config.set_dtype_policy, before)
        keras.config.set_dtype_policy(config.dtype_policy)
        if config.train:
            evaluate_path = None
            if config.eval_every is not None:
                evaluations = evaluate.evaluator_of(config, strategy)
                evaluate_path = stack.enter_context(evaluations)
            return train.train(config, strategy, evaluate_path)
        if config.checkpoint is None and config.num_trials == 1:
            return evaluate.evaluate_continuously(config, strategy)
        return ensemble.evaluate_checkpoints(config, strategy)


def main(arguments):
    """Runs the job that the flags describe."""
    run(flags.settings_of(Config))


if __name__ == "__main__":
    flags.define(Config)
    flags.run(main)
