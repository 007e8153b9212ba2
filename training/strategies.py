"""How a network computes on one device, and what several devices replace.

Every device holds all weights and computes a part of each batch.
"""

import contextlib
import dataclasses
from collections.abc import Callable

import keras
import tensorflow as tf

from layers.backends import is_on_cpu
from layers.fast_convolution import KeptSpectra
from models.optimizer import jit_compile

# JAX is imported in functions: other backends work without it.


@dataclasses.dataclass
class Predictor:
    """Predicts batches; call `refresh` after the weights have changed.

    `predict(x, y)` takes two dicts of NumPy arrays [B, ...], with B divisible
    by the number of devices. It returns scores [B, classes] and
    `Predictions.losses` [B, 2]; a GPU may still be computing both.
    """

    predict: Callable
    refresh: Callable = lambda: None


class Strategy:
    """`count` devices, in all processes, share each batch.

    Only the process whose `is_first` is true writes files.
    """

    count = 1
    is_first = True
    # A context in which models are built, compiled and loaded.
    scope = contextlib.nullcontext
    # A context in which saving does not wait for other processes.
    undistributed = contextlib.nullcontext
    # Reduces batches of a dataset to rows that this process computes.
    shard = staticmethod(lambda batches: batches)
    # The maximum of an int over all processes.
    max_over_processes = staticmethod(lambda value: value)

    def make_predictor(self, model):
        """The `Predictor` of a `Classifier`."""
        if keras.backend.backend() == "tensorflow":
            return _predictor_on_tensorflow(model)
        if keras.backend.backend() == "jax" and not is_on_cpu():
            return Predictor(compiled_on_jax(model))

        def predict(x, y):
            return model.scores_and_losses(x, y, model.predict_on_batch(x))

        return Predictor(predict)


class OneDevice(Strategy):
    """One device."""


def _predictor_on_tensorflow(model):
    spectra = KeptSpectra()
    if (xla := jit_compile(model)) != "auto":
        model.jit_compile = xla

    @tf.function(jit_compile=model.jit_compile)
    def compiled(x, y):
        with spectra.in_use():
            return model.scores_and_losses(x, y, model(x, training=False))

    return Predictor(compiled, spectra.update)


def compiled_on_jax(model):
    """The prediction of a batch, a function of its dicts x and y."""
    import jax

    @jax.jit
    def compiled(weights, x, y):
        outputs, _ = model.stateless_call(*weights, x)
        return model.scores_and_losses(x, y, outputs)

    def predict(x, y):
        groups = model.trainable_variables, model.non_trainable_variables
        weights = [[v.value for v in group] for group in groups]
        return compiled(weights, x, y)

    return predict
