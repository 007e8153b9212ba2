"""Time and size of a checkpoint of the default network, beside its training.

  python benchmarks/checkpoint_benchmark.py
  python benchmarks/checkpoint_benchmark.py --batch_size=16 --steps=5

Alternates training steps and saves in one run, so that both meet the same
machine, and prints medians over --rounds rounds, and what share of a training
the saves are at the default `--save_step`.
"""

import pathlib
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

# First: it sets what TensorFlow reads when it is imported.
from benchmarks import command_line, measuring

# isort: split

import checkpoints
from benchmarks.networks import NETWORKS, examples
from checkpoints.architecture import Architecture
from training.config import Config

FLAGS = {"steps": 3, "rounds": 5, **command_line.SETTING}


def measure(flags):
    """One row: what a step takes, and what is done with checkpoints."""
    setting = command_line.setting(flags)
    architecture = Architecture("capsule", setting.shape, 1, setting.hparams)
    model = NETWORKS["ours"](setting)
    x, y = examples(setting, flags.steps)
    with tempfile.TemporaryDirectory() as folder:

        def save():
            step = int(model.optimizer.iterations)
            metadata = checkpoints.Metadata(step, architecture, {})
            # Loading takes steps back, which are not saved twice.
            return checkpoints.save(
                tempfile.mkdtemp(dir=folder), model, metadata
            )

        def step():
            return measuring.training_seconds(model, x, y, setting.batch_size)

        step()
        saved = checkpoints.open(save())
        found = measuring.alternate(
            {
                "step": step,
                "save": measuring.timed(save),
                "open": measuring.timed(checkpoints.open, saved.path),
                "load": measuring.timed(saved.load, model, architecture),
            },
            flags.rounds,
        )
        size = sum(file.stat().st_size for file in saved.path.iterdir())
    medians = {name: statistics.median(found[name]) for name in found}
    share = medians["save"] / (Config.save_step * medians["step"])
    return [
        {
            **{f"{name} s": seconds for name, seconds in medians.items()},
            "MB": size / 1e6,
            f"% of {Config.save_step} steps": 100 * share,
        }
    ]


if __name__ == "__main__":
    command_line.run(measure, FLAGS, __doc__)
