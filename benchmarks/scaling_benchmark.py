"""Training on 1, 2 and 4 devices, and its cost against batch and image size.

  python benchmarks/scaling_benchmark.py
  KERAS_BACKEND=jax python benchmarks/scaling_benchmark.py --json=FILE

The devices are GPUs with --device=gpu, else logical devices of the CPU: these
share its cores, so that they show what splitting the work costs, not what it
gains. The batch is split over them as experiment.py splits it. Every row is
measured in a process of its own; "peak MB" is that process's (on GPUs, the
first one's).
"""

import argparse
import dataclasses
import os
import pathlib
import statistics
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import keras

from benchmarks import measuring
from benchmarks.networks import MNIST, NETWORKS, Setting, examples
from errors import UserError
from models.hparams import HParams, parse_overrides
from training import devices, parallel

DEVICES = (1, 2, 4)
BATCH_SIZES = (16, 32, 64, 128, 256)
IMAGE_SIZES = (24, 28, 32, 40, 48)


def main(arguments=None):
    """Measures, prints, and writes what was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--policy", default="float32")
    parser.add_argument("--device", default="cpu", help="cpu or gpu")
    parser.add_argument("--devices", type=_numbers, default=DEVICES)
    parser.add_argument("--batch_sizes", type=_numbers, default=BATCH_SIZES)
    parser.add_argument("--image_sizes", type=_numbers, default=IMAGE_SIZES)
    parser.add_argument("--batch_size", type=int, default=128)
    parser.add_argument("--steps", type=int, default=3, help="of a block")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--hparams_override", default="")
    parser.add_argument("--json", help="file to write")
    arguments = parser.parse_args(arguments)
    default = Setting(
        hparams=HParams(**parse_overrides(arguments.hparams_override)),
        batch_size=arguments.batch_size,
    )
    machine = measuring.in_own_process(measuring.machine)
    print(", ".join(f"{name}: {value}" for name, value in machine.items()))
    cases = [(count, default) for count in arguments.devices]
    cases += [
        (1, dataclasses.replace(default, batch_size=size))
        for size in arguments.batch_sizes
    ]
    cases += [
        (
            1,
            dataclasses.replace(
                default,
                shape=dataclasses.replace(MNIST, height=size, width=size),
            ),
        )
        for size in arguments.image_sizes
    ]
    rows = []
    for count, setting in cases:
        try:
            row = measuring.in_own_process(
                _row,
                arguments.policy,
                arguments.device,
                count,
                setting,
                arguments.steps,
                arguments.rounds,
            )
        except UserError as error:
            print(f"not measured: {error}")
        else:
            rows.append(row)
    measuring.show_table(rows)
    if arguments.json:
        measuring.write_json(
            arguments.json,
            rows,
            machine=machine,
            policy=arguments.policy,
            hparams=arguments.hparams_override,
        )


def _numbers(text):
    """Reads "1,2,4"; nothing gives no number."""
    return tuple(int(number) for number in filter(None, text.split(",")))


def _row(policy, device, count, setting, steps, rounds):
    keras.config.set_dtype_policy(policy)
    x, y = examples(setting, steps)
    with devices.computing_on(device, count):
        on = parallel.make(count, device)
        on.require_even_split(setting.batch_size)
        with on.building():
            model = NETWORKS["ours"](setting)
        seconds = [
            measuring.training_seconds(model, x, y, setting.batch_size)
            for _ in range(rounds + 1)
        ]
    median = statistics.median(seconds[1:])
    return {
        "devices": count,
        "batch": setting.batch_size,
        "image": setting.shape.height,
        "ms/step": 1000 * median,
        "images/s": setting.batch_size / median,
        "peak MB": measuring.peak_megabytes(),
    }


if __name__ == "__main__":
    main()
