"""The fully connected capsule layer alone, forward and backward.

  python benchmarks/routing_benchmark.py
  python benchmarks/routing_benchmark.py --policy=mixed_bfloat16 --json=FILE

Varies one number at a time of the layer of the default network: 1152 input
capsules of 8 atoms, 10 output capsules of 16 atoms, 3 iterations, batch 128
(where --inputs=300,600 and the like do not name that value, the first).
The naive layer (benchmarks/naive.py) alternates with it; "of naive" is the
median of the ratios of their speeds within a round. A step computes the
gradients of the weights and of the input capsules.
"""

import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

# First: it sets what TensorFlow reads when it is imported.
from benchmarks import command_line, measuring

# isort: split

import numpy as np

import layers
from benchmarks.naive import NaiveCapsule
from benchmarks.networks import LayerAlone

LAYER = {"iterations": 3, "inputs": 1152, "outputs": 10, "batch": 128}
INPUT_ATOMS, OUTPUT_ATOMS = 8, 16
FLAGS = {
    "iterations": (1, 2, 3, 5),
    "inputs": (288, 576, 1152, 2304),
    "outputs": (5, 10, 20, 40),
    "batch": (16, 32, 64, 128, 256),
    "policy": "float32",
    "steps": 5,
    "rounds": 5,
}


def measure(flags):
    """One row for each size of the layer."""
    cases = command_line.varied(LAYER, flags)
    return [_row(case, flags.steps, flags.rounds) for case in cases]


def _row(case, steps, rounds):
    seconds = measuring.alternate(
        {
            "ours": _measurement(layers.Capsule, case, steps),
            "naive": _measurement(NaiveCapsule, case, steps),
        },
        rounds,
    )
    ours = statistics.median(seconds["ours"])
    return {
        **case,
        "ms": 1000 * ours,
        "us/example": 1e6 * ours / case["batch"],
        "of naive": measuring.median_ratio(seconds["naive"], seconds["ours"]),
    }


def _measurement(layer_class, case, steps):
    """A function that does `steps` steps and gives the seconds of one."""
    capsules = np.random.default_rng(0).normal(
        size=(case["batch"], case["inputs"], INPUT_ATOMS)
    )
    capsules = np.tile(capsules.astype("float32"), (steps, 1, 1))
    layer = layer_class(
        case["outputs"], OUTPUT_ATOMS, num_routing=case["iterations"]
    )
    model = LayerAlone(layer)
    return lambda: measuring.training_seconds(
        model, capsules, capsules[:, 0], case["batch"]
    )


if __name__ == "__main__":
    command_line.run(measure, FLAGS, __doc__)
