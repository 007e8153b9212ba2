"""What the summaries of training cost, as a share of its steps.

  python benchmarks/summary_benchmark.py
  python benchmarks/summary_benchmark.py --repeats=20 --json=summaries.json

In one training of the default model, blocks of `--summary_step` steps without
summaries and with them alternate: the scalars, their running means and the
progress on the terminal. Three measures:

  time       how much longer a block with summaries takes, the median and the
             quartiles over `--repeats` pairs; noisy on a busy machine
  processor  the same for the processor time of this process
  callbacks  the time inside the callbacks, of the time of those blocks

Verbose summaries are written at every tenth scalar and timed alone.
"""

import argparse
import json
import math
import os
import pathlib
import statistics
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import keras

from checkpoints.architecture import Architecture
from input_data import registry
from input_data.splits import Split
from models.capsule import HParams
from models.hparams import parse_overrides
from models.optimizer import compile_model, make_schedule
from training.callbacks import (
    VERBOSE_EVERY,
    ShowProgress,
    StartNextMean,
    WriteSummaries,
    WriteVerboseSummaries,
)
from training.config import Config
from training.summaries import SummaryWriter

# Pairs of blocks in which TensorFlow traces its functions.
_WARM_UP = 1


def main():
    """Measures, prints a table and perhaps writes it."""
    arguments = _parse_arguments()
    config = Config(
        batch_size=arguments.batch_size, summary_step=arguments.summary_step
    )
    pipeline = registry.load("digits", Split.TRAIN, registry.Options())
    hparams = HParams(**parse_overrides(HParams, arguments.hparams_override))
    architecture = Architecture("capsule", pipeline.spec.shape, 1, hparams)
    model = architecture.build()
    compile_model(model)
    pairs = _WARM_UP + arguments.repeats
    num_steps = 2 * pairs * config.summary_step
    with tempfile.TemporaryDirectory() as folder:
        writer = SummaryWriter(folder)
        blocks = _AlternatingBlocks(
            [
                ShowProgress(0, num_steps),
                WriteSummaries(0, writer, config, make_schedule(hparams)),
                StartNextMean(0, config.summary_step),
            ],
            config.summary_step,
        )
        model.fit(
            pipeline.training_batches(config.batch_size, 0, 0, num_steps),
            callbacks=[blocks],
            shuffle=False,
            verbose=0,
        )
        verbose = _verbose_seconds(
            model, writer, pipeline, config, arguments.repeats
        )
    result = _result(blocks, verbose, config)
    _show(result)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")


def _parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--batch_size", type=int, default=Config.batch_size)
    parser.add_argument("--hparams_override", default="")
    parser.add_argument("--json", type=pathlib.Path, help="file to write")
    parser.add_argument(
        "--repeats", type=int, default=10, help="pairs of blocks, 2 or more"
    )
    parser.add_argument("--summary_step", type=int, default=Config.summary_step)
    return parser.parse_args()


class _AlternatingBlocks(keras.callbacks.Callback):
    """Calls callbacks in half of the blocks of steps, and times all blocks.

    Attributes:
      seconds: pair of lists, of the blocks without callbacks and with them.
      processor_seconds: the same, of processor time.
      inside: list of the seconds inside the callbacks, of the latter.
    """

    def __init__(self, callbacks, size):
        super().__init__()
        self._callbacks = callbacks
        self._size = size
        self.seconds = ([], [])
        self.processor_seconds = ([], [])
        self.inside = []

    def set_model(self, model):
        super().set_model(model)
        for callback in self._callbacks:
            callback.set_model(model)

    def on_train_begin(self, logs=None):
        for callback in self._callbacks:
            callback.on_train_begin(logs)
        self._begin_block()

    def on_train_batch_end(self, batch, logs=None):
        # As training does in any case; it waits for the step to end.
        if not math.isfinite(logs["loss"]):
            raise SystemExit("the loss is not finite")
        block, place = divmod(batch, self._size)
        # Without, with, with, without: a machine that slows down favours none.
        with_callbacks = (block + 1) // 2 % 2
        before = time.perf_counter()
        if with_callbacks:
            for callback in self._callbacks:
                callback.on_train_batch_end(batch, logs)
        now = time.perf_counter()
        self._inside += now - before
        if place == self._size - 1:
            self.seconds[with_callbacks].append(now - self._began)
            self.processor_seconds[with_callbacks].append(
                time.process_time() - self._processor_began
            )
            if with_callbacks:
                self.inside.append(self._inside)
            self._begin_block()

    def _begin_block(self):
        self._inside = 0.0
        self._began = time.perf_counter()
        self._processor_began = time.process_time()


def _verbose_seconds(model, writer, pipeline, config, repeats):
    """Seconds of each writing of verbose summaries."""
    callback = WriteVerboseSummaries(0, writer, pipeline, config)
    callback.set_model(model)
    every = VERBOSE_EVERY * config.summary_step
    seconds = []
    for number in range(1, _WARM_UP + repeats + 1):
        before = time.perf_counter()
        callback.on_step(number * every, None)
        seconds.append(time.perf_counter() - before)
    return seconds[_WARM_UP:]


def _result(blocks, verbose, config):
    without, with_summaries = (times[_WARM_UP:] for times in blocks.seconds)
    step = statistics.median(without) / config.summary_step
    verbose_step = VERBOSE_EVERY * config.summary_step * step
    inside = sum(blocks.inside[_WARM_UP:])
    return {
        "batch_size": config.batch_size,
        "summary_step": config.summary_step,
        "repeats": len(without),
        "step_seconds": step,
        "time_percent": _percent_more(blocks.seconds),
        "processor_percent": _percent_more(blocks.processor_seconds),
        "callbacks_percent": 100 * inside / sum(with_summaries),
        "verbose_seconds": statistics.median(verbose),
        "verbose_percent": 100 * statistics.median(verbose) / verbose_step,
    }


def _percent_more(seconds):
    """Quartiles of what the second of each pair takes beyond the first."""
    pairs = list(zip(*seconds, strict=True))[_WARM_UP:]
    return statistics.quantiles([100 * (b / a - 1) for a, b in pairs])


def _show(result):
    print(
        f"a step of {result['batch_size']} images: "
        f"{1000 * result['step_seconds']:.1f} ms\n"
        f"summaries every {result['summary_step']} steps, "
        f"{result['repeats']} repeats"
    )
    for name in ("time", "processor"):
        low, median, high = result[f"{name}_percent"]
        print(f"  {name:9} {median:8.2f}% of a step ({low:.2f} to {high:.2f})")
    print(
        f"  callbacks {result['callbacks_percent']:8.2f}%\n"
        f"verbose every {VERBOSE_EVERY * result['summary_step']} steps\n"
        f"  alone     {result['verbose_percent']:8.2f}% "
        f"({1000 * result['verbose_seconds']:.0f} ms each)"
    )


if __name__ == "__main__":
    main()
