"""Training on 1, 2 and 4 devices, and its cost against batch and image size.

  python benchmarks/scaling_benchmark.py
  KERAS_BACKEND=jax python benchmarks/scaling_benchmark.py --json=FILE

The devices are the GPUs, as many as there are; without one, parts of the CPU:
these share its cores, so that they show what splitting the work costs, not
what it gains. The batch is split over them by tf.distribute.MirroredStrategy
or keras.distribution.DataParallel. Every row is measured in a process of its
own; "peak MB" is that process's (on GPUs, the first one's).
"""

import argparse
import contextlib
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

DEVICES = (1, 2, 4)
BATCH_SIZES = (16, 32, 64, 128, 256)
IMAGE_SIZES = (24, 28, 32, 40, 48)


def main(arguments=None):
    """Measures, prints, and writes what was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--policy", default="float32")
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


def _row(policy, devices, setting, steps, rounds):
    keras.config.set_dtype_policy(policy)
    x, y = examples(setting, steps)
    with _split_over(devices):
        model = NETWORKS["ours"](setting)
    seconds = [
        measuring.training_seconds(model, x, y, setting.batch_size)
        for _ in range(rounds + 1)
    ]
    median = statistics.median(seconds[1:])
    return {
        "devices": devices,
        "batch": setting.batch_size,
        "image": setting.shape.height,
        "ms/step": 1000 * median,
        "images/s": setting.batch_size / median,
        "peak MB": measuring.peak_megabytes(),
    }


def _split_over(count):
    """A context in which a model is made that trains on `count` devices."""
    backend = keras.backend.backend()
    if count == 1:
        return contextlib.nullcontext()
    if backend == "tensorflow":
        return _mirrored(count)
    if backend == "jax":
        return _data_parallel(count)
    raise UserError(f"{count} devices on {backend}")


def _mirrored(count):
    import tensorflow as tf

    devices = tf.config.list_physical_devices("GPU")
    if not devices:
        (cpu,) = tf.config.list_physical_devices("CPU")
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * count
        )
        devices = tf.config.list_logical_devices("CPU")
    _require(count, devices)
    names = [f"{d.device_type}:{n}" for n, d in enumerate(devices)]
    return tf.distribute.MirroredStrategy(names[:count]).scope()


def _data_parallel(count):
    import jax

    # Only counts before JAX has started, and only for the CPU.
    jax.config.update("jax_num_cpu_devices", count)
    _require(count, jax.devices())
    devices = keras.distribution.list_devices()[:count]
    return keras.distribution.DataParallel(devices=devices).scope()


def _require(count, devices):
    if len(devices) < count:
        raise UserError(f"{count} devices, as there are {len(devices)}")


if __name__ == "__main__":
    main()
