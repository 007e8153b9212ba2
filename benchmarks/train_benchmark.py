"""The capsule network's step beside its two convolutions alone.

  python benchmarks/train_benchmark.py
  python benchmarks/train_benchmark.py --inference --json=inference.json
  KERAS_BACKEND=jax python benchmarks/train_benchmark.py --networks=naive,ours

Compares, for each policy of number types, three networks on equal batches:

  convolutions  the two convolutions alone, forward and backward, under a mean
                square as loss and plain gradient descent: what a step could
                reach if all else were free
  naive         the step as the reference writes it: votes by tile, multiply
                and sum, routing as a loop of the backend (benchmarks/naive.py)
  ours          the capsule model as it trains: decoder, losses, metrics, Adam

With --inference it compares `predict`, without labels, in place of `fit`.

Blocks of --steps steps of all networks and policies alternate in one process:
images/s is the median over --rounds blocks, and the ratios are medians of the
ratios within a round, to the convolutions and the naive step of the same
policy and to the naive step in float32. Peak memory is that of a process of
its own (on a GPU, of the device) that does three steps and nothing else.
"""

import os
import pathlib
import statistics
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import keras

from benchmarks import command_line, measuring
from benchmarks.networks import NETWORKS, examples

POLICIES = ("float32", "mixed_bfloat16")
STEPS_FOR_MEMORY = 3


def main(arguments=None):
    """Measures, prints, and writes what was asked for."""
    parser = command_line.make_parser(__doc__, steps=3, rounds=9)
    parser.add_argument("--inference", action="store_true")
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--networks", default=",".join(NETWORKS))
    command_line.add_setting(parser)
    arguments = parser.parse_args(arguments)
    machine = measuring.in_own_process(measuring.machine)
    command_line.show_machine(machine)
    rows = compare(
        arguments.policies.split(","),
        arguments.networks.split(","),
        command_line.setting(arguments),
        arguments.inference,
        arguments.steps,
        arguments.rounds,
    )
    command_line.report(rows, machine, arguments)


def compare(policies, names, setting, inference, steps, rounds):
    """One row for each policy and network, measured in other processes."""
    cases = [(policy, name) for policy in policies for name in names]
    seconds = measuring.in_own_process(
        _seconds, cases, setting, inference, steps, rounds
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
            "peak MB": measuring.in_own_process(
                _peak, policy, name, setting, inference
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
    return measuring.peak_megabytes()


def _measurement(policy, name, setting, inference, steps):
    """A function that does `steps` steps and gives the seconds of one."""
    x, y = examples(setting, steps)
    keras.config.set_dtype_policy(policy)
    model = NETWORKS[name](setting)
    if inference:
        images = {"images": x["images"]}
        return lambda: measuring.inference_seconds(
            model, images, setting.batch_size
        )
    return lambda: measuring.training_seconds(model, x, y, setting.batch_size)


if __name__ == "__main__":
    main()
