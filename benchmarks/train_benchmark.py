"""The capsule network's step beside its two convolutions alone.

  python benchmarks/train_benchmark.py
  python benchmarks/train_benchmark.py --inference --json=inference.json
  KERAS_BACKEND=jax python benchmarks/train_benchmark.py --networks=naive,ours
  python benchmarks/train_benchmark.py --networks=ours,shared_capsule,pooling
  python benchmarks/train_benchmark.py --image_size=36

Compares, for each policy of number types, three networks on equal batches:

  convolutions  the two convolutions alone, forward and backward, under a mean
                square as loss and plain gradient descent: what a step could
                reach if all else were free
  naive         the step as the reference writes it: votes by tile, multiply
                and sum, routing as a loop of the backend (benchmarks/naive.py)
  ours          the capsule model as it trains: decoder, losses, metrics, Adam

and, where --networks names them, the models shared_capsule and pooling as they
train, with their own hyper-parameters.

With --inference it compares what an evaluation does, by the same weights for
all batches, in place of `fit`.

Blocks of --steps steps of all networks and policies alternate in one process:
images/s is the median over --rounds blocks, and the ratios are medians of the
ratios within a round, to the convolutions and the naive step of the same
policy and to the naive step in float32. Peak memory is that of a process of
its own (on a GPU, of the device) that does three steps and nothing else.
"""

import dataclasses
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import keras

from benchmarks import command_line, measuring
from benchmarks.networks import MNIST, NETWORKS, examples
from devices.allocation import keep_freed_memory
from devices.machine import peak_megabytes
from devices.parallel import OneDevice
from old import processes
from old.fields import require_known

FLAGS = {
    "inference": False,
    "policies": ("float32", "mixed_bfloat16"),
    "networks": ("convolutions", "naive", "ours"),
    "steps": 3,
    "rounds": 9,
    "image_size": MNIST.height,
    "depth": MNIST.depth,
    **command_line.SETTING,
}
STEPS_FOR_MEMORY = 3


def measure(flags):
    """One row for each policy and network, measured in other processes."""
    for name in flags.networks:
        require_known("network", name, NETWORKS)
    for policy in flags.policies:
        command_line.require_policy(policy)
    size = flags.image_size
    shape = dataclasses.replace(
        MNIST, height=size, width=size, depth=flags.depth
    )
    setting = command_line.setting(flags, shape=shape)
    cases = [(p, name) for p in flags.policies for name in flags.networks]
    seconds = processes.in_own_process(
        _seconds, cases, setting, flags.inference, flags.steps, flags.rounds
    )

    def ratio(case, other):
        if other not in cases:
            return None
        return measuring.median_ratio(seconds[other], seconds[case])

    return [
        {
            "policy": policy,
            "network": name,
            "images/s": setting.batch_size
            / statistics.median(seconds[policy, name]),
            "of convolutions": ratio((policy, name), (policy, "convolutions")),
            "of naive": ratio((policy, name), (policy, "naive")),
            "of naive float32": ratio((policy, name), ("float32", "naive")),
            "peak MB": processes.in_own_process(
                _peak, policy, name, setting, flags.inference
            ),
        }
        for policy, name in cases
    ]


def _seconds(cases, setting, inference, steps, rounds):
    """Lists of seconds for a step, by policy and network."""
    measurements = {
        case: _measurement(*case, setting, inference, steps) for case in cases
    }
    return measuring.alternate(measurements, rounds)


def _peak(policy, name, setting, inference):
    _measurement(policy, name, setting, inference, STEPS_FOR_MEMORY)()
    return peak_megabytes()


def _measurement(policy, name, setting, inference, steps):
    """A function that does `steps` steps and gives the seconds of one."""
    keep_freed_memory()
    keras.config.set_dtype_policy(policy)
    model, size = NETWORKS[name](setting), setting.batch_size
    x, y = examples(setting, steps)
    if inference:
        predictor = OneDevice().predictor(model)
        return lambda: measuring.evaluation_seconds(predictor, x, y, size)
    return lambda: measuring.training_seconds(model, x, y, size)


if __name__ == "__main__":
    command_line.run(measure, FLAGS, __doc__)
