"""Time and size of a checkpoint of the default network, beside its training.

  python benchmarks/checkpoint_benchmark.py
  python benchmarks/checkpoint_benchmark.py --batch_size=16 --steps=5

Alternates training steps and saves in one run, so that both meet the same
machine, and prints what share of a training the saves are at the default
`--save_step`. The medians are taken over `--repeats` rounds.
"""

import argparse
import os
import pathlib
import statistics
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import checkpoints
from checkpoints.architecture import Architecture
from input_data import registry
from input_data.splits import Split
from models.capsule import HParams
from models.optimizer import compile_model
from training.config import Config


def main():
    """Measures and prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--batch_size", type=int, default=Config.batch_size)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()

    pipeline = registry.load("digits", Split.TRAIN, registry.Options())
    architecture = Architecture("capsule", pipeline.spec.shape, 1, HParams())
    model = architecture.build()
    compile_model(model)
    batches = pipeline.training_batches(arguments.batch_size, 0, 0, 1)
    ((x, y),) = batches.as_numpy_iterator()
    model.train_on_batch(x, y)

    times = {"step": [], "save": [], "open": [], "load": []}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(arguments.repeats):
            for _ in range(arguments.steps):
                with _timing(times["step"]):
                    model.train_on_batch(x, y)
            step = int(model.optimizer.iterations)
            metadata = checkpoints.Metadata(step, architecture, {})
            with _timing(times["save"]):
                path = checkpoints.save(folder, model, metadata)
            with _timing(times["open"]):
                saved = checkpoints.open(path)
            with _timing(times["load"]):
                saved.load(model, architecture)
        size = sum(file.stat().st_size for file in path.iterdir())
    medians = {name: statistics.median(v) for name, v in times.items()}
    for name, seconds in medians.items():
        print(f"{name:7s} {seconds:7.3f} s")
    share = medians["save"] / (Config.save_step * medians["step"])
    print(f"size    {size / 1e6:7.1f} MB")
    print(
        f"saving every {Config.save_step} steps of {arguments.batch_size} "
        f"images takes {100 * share:.3f}% of the training time"
    )


class _timing:  # noqa: N801 - used as a word
    def __init__(self, times):
        self._times = times

    def __enter__(self):
        self._start = time.perf_counter()

    def __exit__(self, *exception):
        self._times.append(time.perf_counter() - self._start)


if __name__ == "__main__":
    main()
