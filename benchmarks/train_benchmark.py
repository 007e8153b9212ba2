"""A training step of the capsule network beside its convolutions alone.

  python benchmarks/train_benchmark.py
  python benchmarks/train_benchmark.py --inference --json=inference.json
  python benchmarks/train_benchmark.py --networks=ours,shared_capsule,pooling
  python benchmarks/train_benchmark.py --image_size=36

Networks, on equal batches for each dtype policy:

  convolutions  the two convolutions, forward and backward, with a mean square
                as loss and plain gradient descent
  naive         the step as the reference computes it: votes by tile, multiply
                and sum, routing as a loop (benchmarks/naive.py)
  ours          the capsule model as it trains
  another model of --model, with its own hyper-parameters

With --inference an evaluation is measured instead of `fit`. Blocks of --steps
steps alternate in one process: images/s is the median over --rounds blocks,
ratios are medians of the ratios within a round. Peak memory is that of a
process that does three steps.
"""

import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))


# isort: split

import keras
import numpy as np
from keras import ops

from benchmarks import measuring
from benchmarks.naive import naive_model
from input_data import features as keys
from layers.network import CONV_STDDEV, KERNEL_SIZE, PRIMARY_STRIDES
from layers.utils import reference_initializers
from models.capsule import CapsuleModel, HParams
from models.hparams import parse_overrides
from models.optimizer import compile_model
from models.registry import build_model, model_class
from training.devices import OneDevice
from training.record import peak_megabytes

FLAGS = {
    "inference": False,
    "policies": ("float32", "mixed_bfloat16"),
    "networks": ("convolutions", "naive", "ours"),
    "steps": 3,
    "rounds": 9,
    "image_size": 28,
    "depth": 1,
    "batch_size": 128,
    "hparams_override": "",
}


def measure(flags):
    """One row for each policy and network."""
    cases = [(p, name) for p in flags.policies for name in flags.networks]
    seconds = measuring.in_process(_seconds, cases, flags)

    def ratio(case, other):
        if other not in cases:
            return None
        return measuring.median_ratio(seconds[other], seconds[case])

    return [
        {
            "policy": policy,
            "network": name,
            "images/s": flags.batch_size
            / statistics.median(seconds[policy, name]),
            "of convolutions": ratio((policy, name), (policy, "convolutions")),
            "of naive": ratio((policy, name), (policy, "naive")),
            "of naive float32": ratio((policy, name), ("float32", "naive")),
            "peak MB": measuring.in_process(_peak, policy, name, flags),
        }
        for policy, name in cases
    ]


def _seconds(cases, flags):
    measurements = {
        case: _measurement(*case, flags, flags.steps) for case in cases
    }
    return measuring.alternate(measurements, flags.rounds)


def _peak(policy, name, flags):
    _measurement(policy, name, flags, 3)()
    return peak_megabytes()


def _measurement(policy, name, flags, steps):
    """A function that does `steps` steps and returns the seconds of one."""
    keras.config.set_dtype_policy(policy)
    shape = keys.ImageShape(flags.image_size, flags.image_size, flags.depth, 10)
    hparams = HParams(**parse_overrides(HParams, flags.hparams_override))
    model = make_network(name, shape, hparams)
    x, y = examples(shape, flags.batch_size, steps)
    if flags.inference:
        begin = OneDevice().make_predict_fn(model)
        return lambda: measuring.inference_seconds(
            begin, x, y, flags.batch_size
        )
    return lambda: measuring.training_seconds(model, x, y, flags.batch_size)


def make_network(name, shape, hparams):
    """A compiled network by its name, see above."""
    if name == "convolutions":
        return ConvolutionsAlone(hparams)
    if name in ("naive", "ours"):
        make_model = {"naive": naive_model, "ours": CapsuleModel}[name]
        model = make_model(shape, 1, hparams)
        model.create_weights(shape)
    else:
        model = build_model(name, shape, 1, model_class(name).HParams())
    compile_model(model)
    return model


class ConvolutionsAlone(keras.Model):
    """The capsule network's convolutions, trained on their mean square."""

    xla = "auto"

    def __init__(self, hparams):
        super().__init__()
        options = {
            "padding": hparams.padding.lower(),
            "data_format": "channels_last",
        }
        self.conv1 = keras.layers.Conv2D(
            hparams.conv_channels,
            KERNEL_SIZE,
            activation="relu",
            **options,
            **reference_initializers(CONV_STDDEV),
        )
        self.conv2 = keras.layers.Conv2D(
            hparams.num_prime_capsules * hparams.primary_atoms,
            KERNEL_SIZE,
            strides=PRIMARY_STRIDES,
            **options,
            **reference_initializers(),
        )
        self.compile(optimizer=keras.optimizers.SGD(1e-6))

    def call(self, x):
        features = self.conv2(self.conv1(x[keys.IMAGES]))
        features = ops.cast(features, "float32")
        return ops.mean(ops.square(features), axis=(1, 2, 3))

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        return ops.mean(y_pred)

    def logits_and_losses(self, x, y, outputs):
        """What an evaluation keeps."""
        return [outputs]


def examples(shape, batch_size, steps):
    """(x, y) of `steps` equal batches of random images."""
    size = (batch_size, shape.height, shape.width, shape.depth)
    images = np.random.default_rng(0).uniform(size=size).astype("float32")
    images = np.tile(images, (steps, 1, 1, 1))
    labels = np.arange(batch_size) % shape.num_classes
    labels = np.tile(labels.astype("int32"), steps)
    one_hot = np.eye(shape.num_classes, dtype="float32")[labels]
    return (
        {keys.IMAGES: images, keys.RECONS_LABEL: labels},
        {keys.LOGITS: one_hot, keys.RECONS: images},
    )


if __name__ == "__main__":
    measuring.run(measure, FLAGS, __doc__)
