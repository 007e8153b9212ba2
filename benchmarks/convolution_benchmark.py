"""The direct convolution beside the Toom-Cook algorithm, by size.

  python benchmarks/convolution_benchmark.py
  python benchmarks/convolution_benchmark.py --kernel=3,9 --inference
  python benchmarks/convolution_benchmark.py --kernel=3,5,9 --tiles

Varies one number at a time of the primary capsules: 20x20 positions of 256
channels, a kernel of 9x9 to 256 filters, stride 2, batch 128. "measured" is the
time of the direct convolution divided by that of Toom-Cook, "expected" the same
by the cost model in layers/convolution.py. A step computes both gradients. With
--tiles all square tiles are measured instead of the chosen one.
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
from layers.convolution import costs
from layers.toom_cook import toom_cook_convolution

SIZES = {
    "size": 20,
    "channels": 256,
    "kernel": 9,
    "filters": 256,
    "stride": 2,
    "batch": 128,
}
FLAGS = {
    "size": (12, 20, 28, 40),
    "channels": (1, 16, 64, 256),
    "kernel": (2, 3, 5, 9),
    "filters": (16, 64, 256),
    "stride": (1, 2, 3),
    "batch": (1, 8, 32, 128),
    "padding": "valid",
    "policy": "float32",
    "inference": False,
    "tiles": False,
    "steps": 2,
    "rounds": 3,
}


def measure(flags):
    """One row for each size of the convolution, and tile."""
    return [
        _row(case, *expected, flags)
        for case in _cases(flags)
        for expected in _expected(case, flags)
    ]


def _cases(flags):
    """The default sizes, and all that differ from them in one number."""
    values = {name: getattr(flags, name) for name in SIZES}
    default = {
        name: number if number in values[name] else values[name][0]
        for name, number in SIZES.items()
    }
    return [default] + [
        {**default, name: number}
        for name in SIZES
        for number in values[name]
        if number != default[name]
    ]


def _expected(case, flags):
    """Pairs of a plan and its expected ratio."""
    dtype = keras.config.dtype_policy().compute_dtype
    by_plan, direct = costs(*_shapes(case), flags.padding, dtype)
    plans = [min(by_plan, key=by_plan.get)]
    if flags.tiles:
        plans = [p for p in by_plan if p.rows == p.columns]
    return [(plan, direct / by_plan[plan]) for plan in plans]


def _row(case, plan, expected, flags):
    def direct(layer):
        return keras.layers.Conv2D.convolution_op.__get__(layer)

    def toom_cook(layer):
        return lambda images, kernel: toom_cook_convolution(
            images, kernel, plan
        )

    seconds = measuring.alternate(
        {
            "direct": _measurement(direct, case, flags),
            "toom_cook": _measurement(toom_cook, case, flags),
        },
        flags.rounds,
    )
    return {
        **case,
        "tile": f"{plan.rows.tile}x{plan.columns.tile}",
        "direct ms": 1000 * statistics.median(seconds["direct"]),
        "toom_cook ms": 1000 * statistics.median(seconds["toom_cook"]),
        "measured": measuring.median_ratio(
            seconds["direct"], seconds["toom_cook"]
        ),
        "expected": expected,
    }


def _shapes(case):
    """Shapes of images and kernel, and the strides."""
    size, kernel, channels = case["size"], case["kernel"], case["channels"]
    return (
        (case["batch"], size, size, channels),
        (kernel, kernel, channels, case["filters"]),
        (case["stride"],) * 2,
    )


def _measurement(operation, case, flags):
    """A function that does `steps` steps and returns the seconds of one."""
    shape, kernel, strides = _shapes(case)
    layer = keras.layers.Conv2D(
        kernel[-1], kernel[0], strides=strides, padding=flags.padding
    )
    layer.convolution_op = operation(layer)
    model = LayerAlone(layer)
    images = np.random.default_rng(0).normal(size=shape).astype("float32")
    images = np.tile(images, (flags.steps, 1, 1, 1))
    labels = images[:, 0, 0, 0]
    if flags.inference:
        return lambda: measuring.inference_seconds(
            lambda: lambda x, y: model.predict_on_batch(x["images"]),
            {"images": images},
            {},
            shape[0],
        )
    return lambda: measuring.training_seconds(model, images, labels, shape[0])


class LayerAlone(keras.Model):
    """A factor of the inputs and a layer, trained on its mean square.

    The factor makes the gradient of the inputs part of a step.
    """

    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.factor = self.add_weight(shape=(), initializer="ones")
        self.compile(optimizer=keras.optimizers.SGD(1e-6))

    def call(self, inputs):
        outputs = ops.cast(self.layer(inputs * self.factor), "float32")
        return ops.mean(ops.square(outputs), axis=(1, 2, 3))

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        return ops.mean(y_pred)


if __name__ == "__main__":
    measuring.run(measure, FLAGS, __doc__)
