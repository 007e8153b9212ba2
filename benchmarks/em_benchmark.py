"""A training step of matrix capsules beside the equations as they stand.

  python benchmarks/em_benchmark.py
  python benchmarks/em_benchmark.py --networks=large --kinds=ours

The paper's network on images of 32x32x2 with 5 classes: large is 32-32-32-32,
small 64-8-16-16. The naive network (benchmarks/naive_em.py) has the same
weights and takes several times the memory. Each runs in a process of its own,
in turn; "of naive" is the median of the ratios of their speeds within a round.
"MB more" is the peak memory beyond that of a process with batches of one image.
"""

import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))


# isort: split

import keras

from benchmarks import measuring
from benchmarks.naive_em import naive_model
from benchmarks.train_benchmark import examples
from input_data import features as keys
from models.matrix_capsule import HParams
from models.optimizer import compile_model
from models.registry import build_model
from training.record import peak_megabytes

SHAPE = keys.ImageShape(32, 32, 2, 5)
NETWORKS = {"large": {}, "small": HParams.PRESETS["small"]}


FLAGS = {
    "networks": ("small",),
    "kinds": ("ours", "naive"),
    "batch_size": 32,
    "routing": 3,
    "steps": 3,
    "rounds": 3,
}


def measure(flags):
    """A row for each network and kind."""
    rows = []
    for network in flags.networks:
        values = {**NETWORKS[network], "routing": flags.routing}
        kinds = list(flags.kinds)
        results = {kind: [] for kind in kinds}
        for _ in range(flags.rounds):
            for kind in kinds:
                results[kind].append(
                    measuring.in_process(
                        _measured, kind, values, flags.batch_size, flags.steps
                    )
                )
            kinds.reverse()
        _, least = measuring.in_process(_measured, "ours", values, 1, 1)
        rows += [_row(network, k, results, least, flags) for k in results]
    return rows


def _measured(kind, values, batch_size, steps):
    """Seconds of a step and the process's peak memory in megabytes."""
    hparams = HParams(**values)
    if kind == "naive":
        keras.utils.set_random_seed(0)
        model = naive_model(SHAPE, hparams)
    else:
        model = build_model("matrix_capsule", SHAPE, 1, hparams)
    compile_model(model)
    x, y = examples(SHAPE, batch_size, steps)
    measuring.training_seconds(model, x, y, batch_size)  # traces
    seconds = measuring.training_seconds(model, x, y, batch_size)
    return seconds, peak_megabytes()


def _row(network, kind, results, least, flags):
    seconds, megabytes = zip(*results[kind], strict=True)
    row = {
        "network": network,
        "batch": flags.batch_size,
        "routing": flags.routing,
        "step": kind,
        "ms": 1000 * statistics.median(seconds),
        "MB more": max(megabytes) - least,
        "of naive": None,
        "memory of naive": None,
    }
    if "naive" in results:
        naive_seconds, naive_megabytes = zip(*results["naive"], strict=True)
        row["of naive"] = measuring.median_ratio(naive_seconds, seconds)
        row["memory of naive"] = row["MB more"] / (max(naive_megabytes) - least)
    return row


if __name__ == "__main__":
    measuring.run(measure, FLAGS, __doc__)
