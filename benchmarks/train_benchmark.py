"""The capsule network's step beside its two convolutions alone.

  python benchmarks/train_benchmark.py
  python benchmarks/train_benchmark.py --inference --json=inference.json
  KERAS_BACKEND=jax python benchmarks/train_benchmark.py --networks=convolutions,ours

Compares, for each policy of number types, three networks on equal batches:

  convolutions  the two convolutions alone, forward and backward, under a mean
                square as loss and plain gradient descent: what a step could
                reach if all else were free
  naive         the step as the reference writes it: votes by tile, multiply
                and sum, routing as a loop of the backend (benchmarks/naive.py)
  ours          the capsule model as it trains: decoder, losses, metrics, Adam

With --inference it compares `predict`, without labels, in place of `fit`.

Blocks of --steps steps of the networks alternate in one process for each
policy; images/s is the median over --rounds blocks, and the ratios are medians
of the ratios within a round. Peak memory is that of a process for each network
(on a GPU, of the device) that does three steps and nothing else.
"""

import argparse
import os
import pathlib
import statistics
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import keras

from benchmarks import measuring
from benchmarks.networks import NETWORKS, Setting, examples
from models.hparams import HParams, parse_overrides

POLICIES = ("float32", "mixed_bfloat16")
STEPS_FOR_MEMORY = 3


def main(arguments=None):
    """Measures, prints, and writes what was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--inference", action="store_true")
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--batch_size", type=int, default=128)
    parser.add_argument("--steps", type=int, default=3, help="of a block")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--hparams_override", default="")
    parser.add_argument("--json", help="file to write")
    arguments = parser.parse_args(arguments)
    setting = Setting(
        hparams=HParams(**parse_overrides(arguments.hparams_override)),
        batch_size=arguments.batch_size,
    )
    machine = measuring.in_own_process(measuring.machine)
    print(", ".join(f"{name}: {value}" for name, value in machine.items()))
    rows = []
    for policy in arguments.policies.split(","):
        rows += compare(
            policy,
            arguments.networks.split(","),
            setting,
            arguments.inference,
            arguments.steps,
            arguments.rounds,
        )
    measuring.show_table(rows)
    if arguments.json:
        measuring.write_json(
            arguments.json,
            rows,
            machine=machine,
            inference=arguments.inference,
            batch_size=arguments.batch_size,
            hparams=arguments.hparams_override,
        )


def compare(policy, names, setting, inference, steps, rounds):
    """One row for each network, measured in processes of their own."""
    found = measuring.in_own_process(
        _seconds, policy, names, setting, inference, steps, rounds
    )
    rows = []
    for name in names:
        row = {
            "policy": policy,
            "network": name,
            "images/s": setting.batch_size / statistics.median(found[name]),
        }
        for other in ("convolutions", "naive"):
            row[f"of {other}"] = (
                measuring.median_ratio(found[other], found[name])
                if other in names
                else None
            )
        row["peak MB"] = measuring.in_own_process(
            _peak, policy, name, setting, inference
        )
        rows.append(row)
    return rows


def _seconds(policy, names, setting, inference, steps, rounds):
    """Lists of seconds for a step, by the network's name."""
    keras.config.set_dtype_policy(policy)
    measurements = {
        name: _measurement(name, setting, inference, steps) for name in names
    }
    return measuring.alternate(measurements, rounds)


def _peak(policy, name, setting, inference):
    keras.config.set_dtype_policy(policy)
    _measurement(name, setting, inference, STEPS_FOR_MEMORY)()
    return measuring.peak_megabytes()


def _measurement(name, setting, inference, steps):
    """A function that does `steps` steps and gives the seconds of one."""
    x, y = examples(setting, steps)
    model = NETWORKS[name](setting)
    if inference:
        images = {"images": x["images"]}
        return lambda: measuring.inference_seconds(
            model, images, setting.batch_size
        )
    return lambda: measuring.training_seconds(model, x, y, setting.batch_size)


if __name__ == "__main__":
    main()
