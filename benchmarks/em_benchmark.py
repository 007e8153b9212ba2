"""A training step of matrix capsules beside the equations written out.

  python benchmarks/em_benchmark.py
  python benchmarks/em_benchmark.py --networks=large --kinds=ours

The network of the paper with images of 32x32x2 and 5 classes: large is
32-32-32-32, small 64-8-16-16. The naive network (benchmarks/naive_em.py) has
the same weights and takes several times the memory. Each runs in a process of
its own, one after the other in each round; "of naive" is the median of the
ratios of their speeds within a round. Memory is the most that a process has
had; "MB more" is what it has had beyond a process whose batches hold one image.
"""

import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import keras
import numpy as np

from benchmarks import command_line, measuring
from benchmarks.naive_em import naive_model
from devices.machine import peak_megabytes
from input_data import features as keys
from models.matrix_capsule import HParams
from models.optimizer import compile_model
from models.registry import build_model
from old import processes
from old.fields import require_known

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
    for network in flags.networks:
        require_known("network", network, NETWORKS)
    for kind in flags.kinds:
        require_known("kind", kind, FLAGS["kinds"])
    rows = []
    for network in flags.networks:
        values = {**NETWORKS[network], "routing": flags.routing}
        kinds = list(flags.kinds)
        found = {kind: [] for kind in kinds}
        for _ in range(flags.rounds):
            for kind in kinds:
                found[kind].append(
                    processes.in_own_process(
                        _measured, kind, values, flags.batch_size, flags.steps
                    )
                )
            kinds.reverse()
        _, least = processes.in_own_process(_measured, "ours", values, 1, 1)
        rows += [_row(network, kind, found, least, flags) for kind in found]
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
    generator = np.random.default_rng(0)
    size = batch_size * steps
    x = {
        keys.IMAGES: generator.normal(
            size=(size, SHAPE.height, SHAPE.width, SHAPE.depth)
        ).astype("float32")
    }
    labels = generator.integers(SHAPE.num_classes, size=size)
    y = {keys.LOGITS: np.eye(SHAPE.num_classes, dtype="float32")[labels]}
    measuring.training_seconds(model, x, y, batch_size)  # traces
    seconds = measuring.training_seconds(model, x, y, batch_size)
    return seconds, peak_megabytes()


def _row(network, kind, found, least, flags):
    seconds, megabytes = zip(*found[kind], strict=True)
    row = {
        "network": network,
        "batch": flags.batch_size,
        "routing": flags.routing,
        "step": kind,
        "ms": 1000 * statistics.median(seconds),
        "MB": max(megabytes),
        "MB more": max(megabytes) - least,
        "of naive": None,
        "memory of naive": None,
    }
    if "naive" in found:
        naive_seconds, naive_megabytes = zip(*found["naive"], strict=True)
        row["of naive"] = measuring.median_ratio(naive_seconds, seconds)
        row["memory of naive"] = row["MB more"] / (max(naive_megabytes) - least)
    return row


if __name__ == "__main__":
    command_line.run(measure, FLAGS, __doc__)
