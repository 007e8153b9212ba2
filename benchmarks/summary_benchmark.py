"""What the summaries of training cost, as a share of its steps.

  python benchmarks/summary_benchmark.py
  python benchmarks/summary_benchmark.py --rounds=20 --json=summaries.json

Measures the time inside the callbacks that write the scalars, begin their
running means anew and show the progress on the terminal, and inside the one
of verbose summaries, which come with every tenth scalar. Shares are of the
time of the steps in between: medians and quartiles over --rounds.
"""

import pathlib
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import numpy as np

from benchmarks import command_line, measuring
from benchmarks.networks import NETWORKS, examples
from input_data import registry
from input_data.options import Options
from input_data.splits import Split
from models.optimizer import make_schedule
from training.callbacks import (
    VERBOSE_EVERY,
    ShowProgress,
    StartNextMean,
    WriteSummaries,
    WriteVerboseSummaries,
)
from training.clock import Clock
from training.config import Config
from training.summaries import SummaryWriter

FLAGS = {
    "summary_step": Config.summary_step,
    "rounds": 10,
    **command_line.SETTING,
}


def measure(flags):
    """One row for the scalars, one for verbose summaries."""
    every, every_verbose = (n * flags.summary_step for n in (1, VERBOSE_EVERY))
    config = Config(batch_size=flags.batch_size, summary_step=every)
    setting = command_line.setting(flags)
    model = NETWORKS["ours"](setting)
    x, y = examples(setting, 1)
    history = model.fit(x, y, setting.batch_size, verbose=0).history
    logs = {name: values[-1] for name, values in history.items()}
    pipeline = registry.load("digits", Split.TRAIN, Options())
    with tempfile.TemporaryDirectory() as folder:
        writer = SummaryWriter(folder)
        scalars = [
            ShowProgress(0, every),
            WriteSummaries(
                0, writer, config, make_schedule(setting.hparams), Clock()
            ),
            StartNextMean(0, every),
        ]
        verbose = WriteVerboseSummaries(0, writer, pipeline, config)
        for callback in [*scalars, verbose]:
            callback.set_model(model)
            callback.on_train_begin()

        def write_scalars():
            for batch in range(every):
                for callback in scalars:
                    callback.on_train_batch_end(batch, logs)

        seconds = measuring.alternate(
            {
                "step": lambda: measuring.training_seconds(
                    model, x, y, setting.batch_size
                ),
                "scalars": measuring.timed(write_scalars),
                "verbose": measuring.timed(
                    verbose.on_step, every_verbose, None
                ),
            },
            flags.rounds,
        )
    return [
        _row("scalars", every, seconds),
        _row("verbose", every_verbose, seconds),
    ]


def _row(name, every, seconds):
    shares = [
        100 * writing / (every * step)
        for writing, step in zip(seconds[name], seconds["step"], strict=True)
    ]
    low, median, high = np.percentile(shares, [25, 50, 75])
    return {
        "summaries": name,
        "every": every,
        "ms": 1000 * statistics.median(seconds[name]),
        "% of the steps": median,
        "from": low,
        "to": high,
    }


if __name__ == "__main__":
    command_line.run(measure, FLAGS, __doc__)
