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

import dataclasses
import os
import pathlib
import statistics
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import keras
import numpy as np
from keras import ops

import layers
from benchmarks import command_line, measuring
from benchmarks.naive import NaiveCapsule


@dataclasses.dataclass(frozen=True)
class Case:
    """The size of a layer and of its batch."""

    iterations: int = 3
    inputs: int = 1152
    outputs: int = 10
    batch: int = 128
    input_atoms: int = 8
    output_atoms: int = 16


VARIED = {
    "iterations": (1, 2, 3, 5),
    "inputs": (288, 576, 1152, 2304),
    "outputs": (5, 10, 20, 40),
    "batch": (16, 32, 64, 128, 256),
}


def main(arguments=None):
    """Measures, prints, and writes what was asked for."""
    parser = command_line.make_parser(__doc__, steps=5, rounds=5)
    parser.add_argument("--policy", default="float32")
    for name, values in VARIED.items():
        parser.add_argument(
            f"--{name}", type=command_line.numbers, default=values
        )
    arguments = parser.parse_args(arguments)
    machine = measuring.machine()
    command_line.show_machine(machine)
    keras.config.set_dtype_policy(arguments.policy)
    varied = {name: getattr(arguments, name) for name in VARIED}
    rows = [
        _row(case, arguments.steps, arguments.rounds) for case in _cases(varied)
    ]
    command_line.report(rows, machine, arguments)


def _cases(varied):
    """The default case, and each that differs from it in one number."""
    default = Case(
        **{
            name: getattr(Case, name)
            if getattr(Case, name) in values
            else values[0]
            for name, values in varied.items()
        }
    )
    return [default] + [
        dataclasses.replace(default, **{name: value})
        for name, values in varied.items()
        for value in values
        if value != getattr(default, name)
    ]


def _row(case, steps, rounds):
    measurements = {
        "ours": _measurement(layers.Capsule, case, steps),
        "naive": _measurement(NaiveCapsule, case, steps),
    }
    seconds = measuring.alternate(measurements, rounds)
    ours = statistics.median(seconds["ours"])
    return {
        **dataclasses.asdict(case),
        "ms": 1000 * ours,
        "us/example": 1e6 * ours / case.batch,
        "of naive": measuring.median_ratio(seconds["naive"], seconds["ours"]),
    }


def _measurement(layer_class, case, steps):
    """A function that does `steps` steps and gives the seconds of one."""
    capsules = np.random.default_rng(0).normal(
        size=(case.batch, case.inputs, case.input_atoms)
    )
    capsules = np.tile(capsules.astype("float32"), (steps, 1, 1))
    layer = layer_class(
        case.outputs, case.output_atoms, num_routing=case.iterations
    )
    model = RoutingAlone(layer, case.input_atoms)
    model.compile(optimizer=keras.optimizers.SGD(1e-6))
    return lambda: measuring.training_seconds(
        model, capsules, capsules[:, 0], case.batch
    )


class RoutingAlone(keras.Model):
    """A weight for each input atom, the layer, the mean square as the loss.

    The weights make the gradients of the input capsules part of the step.
    """

    def __init__(self, layer, input_atoms):
        super().__init__()
        self.layer = layer
        self.factors = self.add_weight(shape=(input_atoms,), initializer="ones")

    def call(self, capsules):
        return self.layer(capsules * self.factors)

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        return ops.mean(ops.square(ops.cast(y_pred, "float32")))


if __name__ == "__main__":
    main()
