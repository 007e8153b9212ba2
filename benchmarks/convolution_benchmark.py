"""Compares direct and Toom-Cook convolutions of several sizes.

  python -m benchmarks.convolution_benchmark --kernel=3,9 --inference
  python -m benchmarks.convolution_benchmark --kernel=9,3,5 --tiles

The first numbers of all flags describe a convolution, by default that of the
primary capsules; the other numbers replace them one at a time. "measured" is
the time of the direct convolution divided by that of the Toom-Cook convolution;
"expected" is this ratio by the cost model of layers/convolution.py. --tiles
measures all square tiles: if the model is right, the row with the largest
"expected" above 1 has the smallest "toom_cook ms". A step takes about 2 ms more
than its convolution, which hides differences of small ones.
"""

import collections
import functools

import keras
import numpy as np

from benchmarks import utils
from layers.convolution import costs
from layers.toom_cook import toom_cook_convolution

FLAGS = {
    "size": (20, 12, 28, 40),
    "channels": (256, 1, 16, 64),
    "kernel": (9, 2, 3, 5),
    "filters": (256, 16, 64),
    "stride": (2, 1, 3),
    "batch": (128, 1, 8, 32),
    "policy": "float32",
    "inference": False,
    "tiles": False,
    "steps": 2,
    "rounds": 3,
}


SIZES = ("size", "channels", "kernel", "filters", "stride", "batch")
Case = collections.namedtuple("Case", [*SIZES, "plan"], defaults=[None])


class LayerAlone(keras.Model):
    """A layer alone. The factor before it needs the gradient of its input."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.factor = self.add_weight(shape=(), initializer="ones")
        self.compile(keras.optimizers.SGD(1e-6), loss=utils.mean_square)

    def call(self, images):
        return self.layer(images * self.factor)


def measure(flags):
    """One row for each combination of a convolution and a size of tiles."""
    return utils.in_own_process(_rows, flags)


def _rows(flags):
    keras.config.set_dtype_policy(flags.policy)
    numbers = {name: getattr(flags, name) for name in SIZES}
    case = Case(*(values[0] for values in numbers.values()))
    cases = [case._replace(**{k: n}) for k in numbers for n in numbers[k]]
    return [
        row for case in dict.fromkeys(cases) for row in _rows_of(case, flags)
    ]


def _rows_of(case, flags):
    dtype = keras.config.dtype_policy().compute_dtype
    images = (case.batch, case.size, case.size, case.channels)
    kernel = (case.kernel, case.kernel, case.channels, case.filters)
    strides = (case.stride, case.stride)
    by_plan, direct = costs(images, kernel, strides, "valid", dtype)
    plans = [min(by_plan, key=by_plan.get)]
    if flags.tiles:
        plans = [plan for plan in by_plan if plan.rows == plan.columns]
    for plan in plans:
        toom_cook = case._replace(plan=plan)
        seconds = utils.alternate(make_step, [case, toom_cook], flags)
        yield {
            **dict(zip(SIZES, case, strict=False)),
            "tile": f"{plan.rows.tile}x{plan.columns.tile}",
            "direct ms": 1000 * np.median(seconds[case]),
            "toom_cook ms": 1000 * np.median(seconds[toom_cook]),
            "measured": utils.speed_ratio(seconds, toom_cook, case),
            "expected": direct / by_plan[plan],
        }


def make_step(case, flags):
    """A function that trains on one batch, or predicts it."""
    layer = keras.layers.Conv2D(case.filters, case.kernel, case.stride)
    if case.plan is not None:
        toom_cook = functools.partial(toom_cook_convolution, plan=case.plan)
        layer.convolution_op = toom_cook
    model = LayerAlone(layer)
    shape = (case.batch, case.size, case.size, case.channels)
    images = np.random.default_rng(0).random(shape, "float32")
    if flags.inference:
        return lambda: model.predict_on_batch(images)
    return lambda: model.train_on_batch(images, images[:, 0, 0, 0])


if __name__ == "__main__":
    utils.run(measure, FLAGS, __doc__)
