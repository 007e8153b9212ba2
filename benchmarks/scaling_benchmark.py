"""Training on 1, 2 and 4 devices, and its cost against batch and image size.

  python benchmarks/scaling_benchmark.py
  KERAS_BACKEND=jax python benchmarks/scaling_benchmark.py --json=FILE

Varies one number at a time. The devices are GPUs with --device=gpu, else
logical devices of the CPU: these share its cores, so that they show what
splitting the work costs, not what it gains. The batch is split over them as
experiment.py splits it. Every row is measured in a process of its own;
"peak MB" is that process's (on GPUs, the first one's).
"""

import dataclasses
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import keras

import devices
from benchmarks import command_line, measuring
from benchmarks.networks import MNIST, NETWORKS, examples
from common import processes
from common.errors import UserError
from devices.machine import peak_megabytes

DEFAULTS = {"devices": 1, "batch_size": 128, "image_size": 28}
FLAGS = {
    "devices": (1, 2, 4),
    "batch_size": (16, 32, 64, 128, 256),
    "image_size": (24, 28, 32, 40, 48),
    "device": "cpu",
    "policy": "float32",
    "steps": 3,
    "rounds": 3,
    "hparams_override": "",
}


def measure(flags):
    """One row for each number of devices, size of the batch and of images."""
    rows = []
    for case in command_line.varied(DEFAULTS, flags):
        try:
            rows.append(processes.in_own_process(_row, flags, case))
        except UserError as error:
            # One that was killed may have wanted too much memory, others have
            # a fault.
            ended = isinstance(error, processes.EndedError)
            if ended and error.exit_code > 0:
                raise
            print(f"not measured: {error}")
    return rows


def _row(flags, case):
    keras.config.set_dtype_policy(flags.policy)
    batch_size, size = case["batch_size"], case["image_size"]
    shape = dataclasses.replace(MNIST, height=size, width=size)
    setting = command_line.setting(flags, batch_size=batch_size, shape=shape)
    x, y = examples(setting, flags.steps)
    settings = devices.Settings(
        device=flags.device, num_gpus=case["devices"], num_processes=1
    )
    with devices.use(settings, "scaling_benchmark.py") as on:
        on.require_even_split(batch_size)
        with on.building():
            model = NETWORKS["ours"](setting)
        seconds = [
            measuring.training_seconds(model, x, y, batch_size)
            for _ in range(flags.rounds + 1)
        ]
    median = statistics.median(seconds[1:])
    return {
        **case,
        "ms/step": 1000 * median,
        "images/s": batch_size / median,
        "peak MB": peak_megabytes(),
    }


if __name__ == "__main__":
    command_line.run(measure, FLAGS, __doc__)
