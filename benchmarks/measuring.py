"""What benchmarks share: timing blocks of steps."""

import statistics
import time

import keras
from keras import ops


def training_seconds(model, x, y, batch_size):
    """Seconds for each step of one pass of `fit` over the examples."""
    clock = _Clock()
    model.fit(x, y, batch_size, shuffle=False, verbose=0, callbacks=[clock])
    return clock.seconds / clock.steps


def inference_seconds(model, x, batch_size):
    """Seconds for each batch of one pass of `predict`."""
    clock = _Clock()
    model.predict(x, batch_size, verbose=0, callbacks=[clock])
    return clock.seconds / clock.steps


def timed(function, *arguments):
    """A function that gives the seconds that one call takes."""

    def seconds():
        start = time.perf_counter()
        function(*arguments)
        return time.perf_counter() - start

    return seconds


def evaluation_seconds(predictor, x, y, batch_size):
    """Seconds for each batch of one pass, as an evaluation computes them.

    Args:
      predictor: as `devices.parallel.OneDevice.predictor` gives it.
      x: dict of arrays.
      y: dict of arrays.
      batch_size: int.
    """
    count = len(next(iter(x.values()))) // batch_size
    parts = [slice(n * batch_size, (n + 1) * batch_size) for n in range(count)]
    predict = predictor()
    start = time.perf_counter()
    for part in parts:
        predict(*({k: v[part] for k, v in arrays.items()} for arrays in (x, y)))
    return (time.perf_counter() - start) / count


class _Clock(keras.callbacks.Callback):
    """From the begin of the first step to when the last result is there."""

    def __init__(self):
        super().__init__()
        self.seconds = None
        self.steps = 0
        self._began = None
        self._result = None

    def on_train_batch_begin(self, batch, logs=None):
        if self._began is None:
            self._began = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        self.steps += 1
        self._result = logs

    def on_train_end(self, logs=None):
        # Accelerators may still be computing: wait for the last step.
        keras.tree.map_structure(ops.convert_to_numpy, self._result)
        self.seconds = time.perf_counter() - self._began

    on_predict_batch_begin = on_train_batch_begin
    on_predict_batch_end = on_train_batch_end
    on_predict_end = on_train_end


def alternate(measurements, rounds):
    """Measures in turn, so that all meet the same machine.

    Args:
      measurements: dict from name to a function that gives a number. Each is
        called once before.
      rounds: int.

    Returns:
      dict from name to the list of its numbers, one for each round.
    """
    for measure in measurements.values():
        measure()
    found = {name: [] for name in measurements}
    order = list(measurements)
    for _ in range(rounds):
        for name in order:
            found[name].append(measurements[name]())
        order.reverse()
    return found


def median_ratio(numerators, denominators):
    """The median of the ratios of the same rounds."""
    return statistics.median(
        a / b for a, b in zip(numerators, denominators, strict=True)
    )
