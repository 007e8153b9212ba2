"""The direct convolution beside Toom and Cook's, over a grid of sizes.

  python benchmarks/convolution_benchmark.py
  python benchmarks/convolution_benchmark.py --kernel=3,9 --inference
  python benchmarks/convolution_benchmark.py --kernel=3,5,9 --tiles

Varies one number at a time of the primary capsules: 20x20 positions of 256
channels, a kernel of 9x9 to 256 filters, stride 2, batch 128. "measured" is
the time of the direct convolution over that of Toom and Cook's, which
alternate; "expected" is the same by the costs by which layers/convolution.py
decides. A step computes the gradients of both arguments. With --tiles all
square tiles are measured, not only those that are chosen: of a size the row
with the largest "expected", if it is above 1, should have the largest
"measured".
"""

import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

# First: it sets what TensorFlow reads when it is imported.
from benchmarks import command_line, measuring

# isort: split

import keras
import numpy as np

from benchmarks.networks import LayerAlone
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
        for case in command_line.varied(SIZES, flags)
        for expected in _expected(case, flags)
    ]


def _expected(case, flags):
    """Pairs of a plan and how many times as fast it should be."""
    dtype = keras.config.dtype_policy().compute_dtype
    by_plan, directly = costs(*_shapes(case), flags.padding, dtype)
    square = [p for p in by_plan if p.rows == p.columns]
    chosen = [min(by_plan, key=by_plan.get)]
    return [
        (plan, directly / by_plan[plan])
        for plan in (square if flags.tiles else chosen)
    ]


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
    """Of images and kernel, and the strides."""
    size, kernel, channels = case["size"], case["kernel"], case["channels"]
    return (
        (case["batch"], size, size, channels),
        (kernel, kernel, channels, case["filters"]),
        (case["stride"],) * 2,
    )


def _measurement(operation, case, flags):
    """A function that does `steps` steps and gives the seconds of one."""
    shape, kernel, strides = _shapes(case)
    layer = keras.layers.Conv2D(
        kernel[-1], kernel[0], strides=strides, padding=flags.padding
    )
    layer.convolution_op = operation(layer)
    model = LayerAlone(layer)
    images = np.random.default_rng(0).normal(size=shape).astype("float32")
    images = np.tile(images, (flags.steps, 1, 1, 1))
    if flags.inference:
        return lambda: measuring.inference_seconds(model, images, shape[0])
    return lambda: measuring.training_seconds(
        model, images, images[:, 0, 0, 0], shape[0]
    )


if __name__ == "__main__":
    command_line.run(measure, FLAGS, __doc__)
