"""Strategies: how a network computes on one device or on several.

Every device holds all weights and computes a part of each batch.
"""

import contextlib

import keras
import numpy as np
import tensorflow as tf

from layers.backends import is_on_cpu
from layers.fast_convolution import KeptSpectra

# JAX is imported in functions: other backends work without it.


class OneDevice:
    """One device; base class of the other strategies.

    `count` devices, in all processes, share each batch. Only the process whose
    `is_first` is true writes files.
    """

    count = 1
    is_first = True

    def scope(self):
        """A context in which models are built, compiled and loaded."""
        return contextlib.nullcontext()

    def undistributed(self):
        """A context in which saving does not wait for other processes."""
        return contextlib.nullcontext()

    def shard(self, batches):
        """Reduces batches of a dataset to rows that this process computes."""
        return batches

    def max_over_processes(self, value):
        """The maximum of `value`, an int, over all processes."""
        return value

    def make_predict_fn(self, model):
        """Compiles the prediction of a batch by a `Classifier`.

        Returns a function `begin`; `begin()` returns a function `predict(x, y)`
        that is valid until the weights change. `predict` takes dicts of NumPy
        arrays [B, ...]; `count` divides B. It returns logits [B, classes] and
        `Predictions.losses` [B, 2]; a GPU may still be computing both.
        """
        if keras.backend.backend() == "tensorflow":
            return _predict_fn_on_tensorflow(model)
        if keras.backend.backend() == "jax" and not is_on_cpu():
            compiled = _compiled_on_jax(model)
            return lambda: compiled

        def predict(x, y):
            return model.scores_and_losses(x, y, model.predict_on_batch(x))

        return lambda: predict


def _predict_fn_on_tensorflow(model):
    spectra = KeptSpectra()
    if model.xla != "auto":
        model.jit_compile = model.xla

    @tf.function(jit_compile=model.jit_compile)
    def compiled(x, y):
        with spectra.in_use():
            return model.scores_and_losses(x, y, model(x, training=False))

    def begin():
        spectra.update()
        return compiled

    return begin


def _compiled_on_jax(model):
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


class MirroredDevices(OneDevice):
    """Several logical devices of one machine, on TensorFlow."""

    def __init__(self, devices):
        tf.get_logger().setLevel("WARNING")  # it logs every collective
        self._strategy = tf.distribute.MirroredStrategy(
            [device.name for device in devices]
        )
        self.count = len(devices)

    def scope(self):
        return self._strategy.scope()

    def make_predict_fn(self, model):
        strategy = self._strategy

        def own_rows(tensor):
            parts = tf.stack(tf.split(tensor, self.count))
            context = tf.distribute.get_replica_context()
            return parts[context.replica_id_in_sync_group]

        def compute(x, y):
            x, y = tf.nest.map_structure(own_rows, (x, y))
            return model.scores_and_losses(x, y, model(x))

        @tf.function
        def compiled(x, y):
            return [
                tf.concat(strategy.experimental_local_results(values), 0)
                for values in strategy.run(compute, args=(x, y))
            ]

        return lambda: compiled


class ShardedDevices(OneDevice):
    """All devices of all processes, on JAX."""

    def __init__(self):
        import jax

        self.count = jax.device_count()
        self.is_first = jax.process_index() == 0
        self._distribution = keras.distribution.DataParallel(
            auto_shard_dataset=False  # `shard` does, and keeps the length
        )
        keras.distribution.set_distribution(self._distribution)

    @contextlib.contextmanager
    def undistributed(self):
        # To save, Keras makes an optimizer, which waits for other processes.
        keras.distribution.set_distribution(None)
        try:
            yield
        finally:
            keras.distribution.set_distribution(self._distribution)

    def shard(self, batches):
        return batches.map(
            lambda *batch: tf.nest.map_structure(_own_rows, batch)
        ).prefetch(tf.data.AUTOTUNE)

    def max_over_processes(self, value):
        from jax.experimental import multihost_utils

        return int(multihost_utils.process_allgather(np.int32(value)).max())

    def make_predict_fn(self, model):
        import jax
        from jax.experimental import multihost_utils

        compiled = _compiled_on_jax(model)

        def distribute(array):
            layout = self._distribution.get_data_layout(array.shape)
            return jax.make_array_from_process_local_data(
                layout.backend_layout, _own_rows(array)
            )

        def predict(x, y):
            x, y = jax.tree.map(distribute, (x, y))
            # Every process gets the logits of all.
            return multihost_utils.process_allgather(compiled(x, y), tiled=True)

        return lambda: predict


def _own_rows(batch):
    """The rows of an array [B, ...] that this process computes."""
    import jax

    size = batch.shape[0] // jax.process_count()
    return batch[size * jax.process_index() :][:size]
