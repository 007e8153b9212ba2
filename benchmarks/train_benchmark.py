"""Compares the training step of the capsule network with its convolutions.

  python -m benchmarks.train_benchmark --inference --json=inference.json
  python -m benchmarks.train_benchmark --networks=capsule,shared_capsule,pooling

The network "convolutions" has only the two convolutions of the capsule model,
a mean square as loss, and plain gradient descent: its speed is what the model
would have if everything else took no time. The other networks are models, with
decoder, losses, metrics and Adam. --inference compares predictions instead.

Blocks of --steps steps of all networks and dtype policies alternate in one
process. The column "of convolutions" is the median over --rounds of the speed
divided by that of the network "convolutions" in the same round. Peak memory, of
the process or GPU, is measured in a separate process for each row. On GPUs
matrix_capsule and vb_capsule disable TF32 for the whole process: measure them
by a separate command.
"""

import keras
import numpy as np
from keras import ops

from benchmarks import utils
from input_data import features as keys
from layers.capsule_stack import KERNEL_SIZE, PRIMARY_STRIDES
from models.hparams import parse_overrides
from models.optimizer import compile_model
from models.registry import build_model, model_class
from training.strategies import OneDevice

NUM_CLASSES = 10
FLAGS = {
    "inference": False,
    "policies": ("float32", "mixed_bfloat16"),
    "networks": ("convolutions", "capsule"),
    "steps": 3,
    "rounds": 9,
    "image_size": 28,
    "depth": 1,
    "batch_size": 128,
    "hparams_override": "",
}


def measure(flags):
    """Yields one row for each policy and network."""
    cases = [(p, name) for p in flags.policies for name in flags.networks]
    seconds = utils.in_own_process(utils.alternate, make_step, cases, flags)
    for case in cases:
        alone = (case[0], "convolutions")
        yield {
            "policy": case[0],
            "network": case[1],
            "images/s": flags.batch_size / np.median(seconds[case]),
            "of convolutions": utils.speed_ratio(seconds, case, alone),
            "peak MB": utils.in_own_process(utils.peak, make_step, case, flags),
        }


def make_step(case, flags):
    """A function that trains on a batch, or predicts it with --inference."""
    policy, network = case
    keras.config.set_dtype_policy(policy)
    model_name = "capsule" if network == "convolutions" else network
    hparams_class = model_class(model_name).HParams
    overrides = parse_overrides(hparams_class, flags.hparams_override)
    hparams = hparams_class(**overrides)
    image = (flags.image_size, flags.image_size, flags.depth)
    size = (flags.batch_size, *image)
    images = np.random.default_rng(0).random(size, "float32")
    labels = np.arange(flags.batch_size, dtype="int32") % NUM_CLASSES
    if network == "convolutions":
        model = convolutions_alone(image, hparams)
        if flags.inference:
            return lambda: model.predict_on_batch(images)
        return lambda: model.train_on_batch(images, labels)
    shape = keys.ImageShape(*image, NUM_CLASSES)
    model = build_model(network, shape, 1, hparams)
    compile_model(model)
    x = {keys.IMAGES: images, keys.RECONS_LABEL: labels}
    y = {keys.LOGITS: np.eye(NUM_CLASSES)[labels], keys.RECONS: images}
    if flags.inference:
        predict = OneDevice().make_predict_fn(model)()
        return lambda: list(map(ops.convert_to_numpy, predict(x, y)))
    return lambda: model.train_on_batch(x, y)


def convolutions_alone(shape, hparams):
    """The two convolutions of the capsule network."""
    padding = hparams.padding.lower()
    filters = hparams.num_prime_capsules * hparams.primary_atoms
    first = keras.layers.Conv2D(
        hparams.conv_channels, KERNEL_SIZE, padding=padding, activation="relu"
    )
    second = keras.layers.Conv2D(
        filters, KERNEL_SIZE, PRIMARY_STRIDES, padding=padding
    )
    model = keras.Sequential([keras.Input(shape), first, second])
    model.compile(keras.optimizers.SGD(1e-6), loss=utils.mean_square)
    return model


if __name__ == "__main__":
    utils.run(measure, FLAGS, __doc__)
