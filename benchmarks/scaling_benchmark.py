"""Training on 1, 2 and 4 devices, and its cost against batch and image size.

  python benchmarks/scaling_benchmark.py
  KERAS_BACKEND=jax python benchmarks/scaling_benchmark.py --json=FILE

The devices are GPUs with --device=gpu, else logical devices of the CPU: these
share its cores, so that they show what splitting the work costs, not what it
gains. The batch is split over them as experiment.py splits it. Every row is
measured in a process of its own; "peak MB" is that process's (on GPUs, the
first one's).
"""

import dataclasses
import os
import pathlib
import statistics
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import keras

import devices
from benchmarks import command_line, measuring
from benchmarks.networks import MNIST, NETWORKS, examples
from common.errors import UserError

DEVICES = (1, 2, 4)
BATCH_SIZES = (16, 32, 64, 128, 256)
IMAGE_SIZES = (24, 28, 32, 40, 48)


def main(arguments=None):
    """Measures, prints, and writes what was asked for."""
    parser = command_line.make_parser(__doc__, steps=3, rounds=3)
    parser.add_argument("--policy", default="float32")
    parser.add_argument("--device", default="cpu", help="cpu or gpu")
    for name, values in (
        ("devices", DEVICES),
        ("batch_sizes", BATCH_SIZES),
        ("image_sizes", IMAGE_SIZES),
    ):
        parser.add_argument(
            f"--{name}", type=command_line.numbers, default=values
        )
    command_line.add_setting(parser)
    arguments = parser.parse_args(arguments)
    default = command_line.setting(arguments)
    machine = measuring.in_own_process(measuring.machine)
    command_line.show_machine(machine)
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
    command_line.report(rows, machine, arguments)


def _row(policy, device, count, setting, steps, rounds):
    keras.config.set_dtype_policy(policy)
    x, y = examples(setting, steps)
    settings = devices.Settings(device=device, num_gpus=count)
    with devices.use(settings, "scaling_benchmark.py") as on:
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
