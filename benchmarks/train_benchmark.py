"""Compares the speed of networks with that of two convolutions alone.

  python -m benchmarks.train_benchmark --inference --json=inference.json
  python -m benchmarks.train_benchmark --networks=capsule,shared_capsule,pooling

The network "convolutions" has only the two convolutions of the capsule model,
a mean square as loss, and plain gradient descent. The other networks are
complete models, trained with their own losses, metrics and Adam.

In one process, each of --rounds rounds runs --steps steps of every network with
every policy. The column "of convolutions" has the median over rounds of a
network's speed divided by that of "convolutions". Peak memory (of the GPU, if
there is one) is measured in separate processes. On GPUs, matrix_capsule and
vb_capsule disable TF32 for the whole process, so measure them in another run.
"""

import concurrent.futures
import dataclasses
import itertools
import multiprocessing
import timeit

import keras
import numpy as np
from keras import ops

from common import flags
from common.files import write_json
from common.flags import field
from config import Config
from input_data import keys
from layers.networks.capsule import KERNEL_SIZE, PRIMARY_STRIDES
from models.architecture import Architecture
from models.optimizer import compile_model
from runs.pages import markdown
from training import devices
from training.run_report import machine, peak_megabytes
from training.strategies import OneDevice

NUM_CLASSES = 10


@dataclasses.dataclass(frozen=True)
class BenchmarkFlags:
    """The flags."""

    inference: bool = field(False, "Whether to predict instead of training.")
    policies: str = field("float32,mixed_bfloat16", "Dtype policies.")
    networks: str = field("convolutions,capsule", "Networks.")
    steps: int = field(3, "Steps in a block.", at_least=1)
    rounds: int = field(9, "Blocks of each network and policy.", at_least=1)
    image_size: int = field(28, "Height and width of images.", at_least=1)
    depth: int = field(1, "Channels of images.", at_least=1)
    batch_size: int = field(128, "Images in a batch.", at_least=1)
    hparams_override: str = field("", "Hyper-parameters: name=value,...")
    json: str | None = field(None, "File for the machine and the rows.")


def main(_):
    """Prints the rows of `measure` as a table; --json writes them to a file."""
    settings = flags.settings_of(BenchmarkFlags)
    computer = in_own_process(machine)
    print(*(f"{name}: {value}" for name, value in computer.items()), sep=", ")
    rows = list(measure(settings))
    print(markdown(list(rows[0]), [row.values() for row in rows], padded=True))
    if settings.json:
        values = dataclasses.asdict(settings)
        document = {"machine": computer, "flags": values, "rows": rows}
        write_json(settings.json, document)


def measure(settings):
    """Yields one row for each combination of policy and network."""
    lists = settings.policies.split(","), settings.networks.split(",")
    seconds = in_own_process(alternate, [*itertools.product(*lists)], settings)
    for (policy, network), own in seconds.items():
        alone = seconds.get((policy, "convolutions"))
        ratio = None if alone is None else np.median(alone / own)
        yield {
            "policy": policy,
            "network": network,
            "images/s": settings.batch_size / np.median(own),
            "of convolutions": ratio,
            "peak MB": in_own_process(peak, (policy, network), settings),
        }


def in_own_process(function, *arguments):
    """Starts a process, selects its devices, and calls the function in it."""
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, context) as pool:
        return pool.submit(_call, function, arguments).result()


def _call(function, arguments):
    with devices.use(Config()):
        return function(*arguments)


def alternate(cases, settings):
    """Dict from (policy, network) to seconds per step, by round."""
    steps = {case: make_step(case, settings) for case in cases}
    for step in steps.values():
        step()  # traces and compiles
    seconds = {case: np.empty(settings.rounds) for case in cases}
    for number in range(settings.rounds):
        for case in cases[:: -1 if number % 2 else 1]:
            block = timeit.timeit(steps[case], number=settings.steps)
            seconds[case][number] = block / settings.steps
    return seconds


def peak(case, settings):
    """Peak memory of three steps in MB."""
    timeit.timeit(make_step(case, settings), number=3)
    return peak_megabytes()


def make_step(case, settings):
    """Returns a function that trains a step or, with --inference, predicts."""
    policy, network = case
    keras.config.set_dtype_policy(policy)
    image = (settings.image_size, settings.image_size, settings.depth)
    size = (settings.batch_size, *image)
    images = np.random.default_rng(0).random(size, "float32")
    labels = np.arange(settings.batch_size, dtype="int32") % NUM_CLASSES
    name = "capsule" if network == "convolutions" else network
    config = Config(model=name, hparams_override=settings.hparams_override)
    shape = keys.ImageShape(*image, NUM_CLASSES)
    architecture = Architecture.from_config(config, shape, num_targets=1)
    if network == "convolutions":
        model = convolutions_alone(image, architecture.hparams)
        if settings.inference:
            return lambda: model.predict_on_batch(images)
        return lambda: model.train_on_batch(images, labels)
    model = architecture.build()
    compile_model(model)
    x = {keys.IMAGES: images, keys.RECONS_LABEL: labels}
    one_hot = np.eye(NUM_CLASSES, dtype="float32")[labels]
    y = {keys.LABELS: one_hot, keys.RECONS: images}
    if settings.inference:
        predict = OneDevice().make_predictor(model).predict
        return lambda: list(map(ops.convert_to_numpy, predict(x, y)))
    return lambda: model.train_on_batch(x, y)


def convolutions_alone(shape, hparams):
    """Builds a network of only the two convolutions of the capsule network."""
    padding = hparams.padding.lower()
    filters = hparams.num_prime_capsules * hparams.primary_atoms
    first = keras.layers.Conv2D(
        hparams.conv_channels, KERNEL_SIZE, padding=padding, activation="relu"
    )
    second = keras.layers.Conv2D(filters, KERNEL_SIZE, PRIMARY_STRIDES, padding)
    model = keras.Sequential([keras.Input(shape), first, second])
    optimizer = keras.optimizers.SGD(1e-6)
    model.compile(optimizer, lambda _, outputs: ops.mean(ops.square(outputs)))
    return model


if __name__ == "__main__":
    flags.define(BenchmarkFlags)
    flags.run(main)
