"""Data parallelism: several devices that compute each batch together.

`make` gives one of three classes with the same methods: every device has all
weights and a part of each batch.
"""

import contextlib
import sys

import keras
import numpy as np
import tensorflow as tf

from common.errors import UserError
from devices import choice
from layers.convolution import KeptSpectra


def make(settings):
    """The devices that `choice` made, and those of a cluster.

    Args:
      settings: `devices.Settings`.

    Returns:
      `OneDevice`, or one of its subclasses.

    Raises:
      UserError: if the devices are not there, or the backend cannot use
        several.
    """
    backend, number = keras.backend.backend(), settings.num_gpus
    if backend == "jax":
        return _on_jax(settings)
    if number == 1:
        return OneDevice()
    if backend != "tensorflow":
        raise UserError(
            f"--num_gpus={number} needs KERAS_BACKEND=tensorflow or jax; it is "
            f"{backend}"
        )
    kind = "CPU" if settings.device == "cpu" else "GPU"
    return MirroredDevices(tf.config.list_logical_devices(kind)[:number])


def _on_jax(settings):
    import jax

    try:
        local = jax.local_devices()
    except RuntimeError as error:  # JAX for GPUs, and none that it may use
        reason = str(error).strip().split("\n")[0]
        raise UserError(f"jax cannot use the devices here: {reason}") from None
    if local[0].platform == "cpu":
        if settings.device != "cpu":
            choice.require_gpus(settings, 0, 1)
        print(
            "Note: convolutions on CPUs are slower on JAX than on TensorFlow "
            "(KERAS_BACKEND=tensorflow)",
            file=sys.stderr,
        )
    else:
        choice.require_gpus(settings, len(local), settings.num_gpus)
    if settings.num_gpus == jax.process_count() == 1:
        return OneDevice()
    return ShardedDevices()


class OneDevice:
    """The plain case, and what the others share.

    Attributes:
      count: int, devices in all, of every process.
      is_first: bool, whether this process writes files.
      is_alone: bool, whether there is no other process.
    """

    count = 1
    is_first = True
    is_alone = True

    def require_even_split(self, batch_size):
        """Raises UserError unless a batch can be split over the devices."""
        if batch_size % self.count:
            raise UserError(
                f"--batch_size={batch_size} cannot be split evenly over "
                f"{self.count} devices"
            )

    def round_up(self, batch_size):
        """The next larger batch size that splits evenly over the devices."""
        return -(-batch_size // self.count) * self.count

    def building(self):
        """A context in which models are built, compiled and loaded."""
        return contextlib.nullcontext()

    def by_itself(self):
        """A context in which this process needs no other one: for saving."""
        return contextlib.nullcontext()

    def own_part(self, batches):
        """The rows of each batch that this process computes.

        Args:
          batches: `tf.data.Dataset` of (x, y), batches of a known size.
        """
        return batches

    def predictor(self, model):
        """What predicts, and is told when the weights have changed.

        Args:
          model: `models.classifier.Classifier`, built in `building`.

        Returns:
          Function `begin()`, to be called after the weights have changed. It
          gives a function `predict(x, y)` by these weights: from dicts of
          NumPy arrays [B, ...], where `count` divides B, to what
          `Classifier.scored` gives, logits [B, classes] and losses [B], NumPy
          arrays.
        """
        if keras.backend.backend() == "tensorflow":
            return _tensorflow_predictor(model)

        def predict(x, y):
            outputs = model.predict_on_batch(x)
            return [
                keras.ops.convert_to_numpy(values)
                for values in model.scored(x, y, outputs)
            ]

        return lambda: predict

    def largest(self, value):
        """The largest of the ints that the processes give."""
        return value


def _tensorflow_predictor(model):
    """`OneDevice.predictor` on TensorFlow: spectra of kernels are kept."""
    spectra = KeptSpectra()
    if model.xla != "auto":
        model.jit_compile = model.xla

    @tf.function(jit_compile=model.jit_compile)
    def scored(x, y):
        with spectra.in_use():
            return model.scored(x, y, model(x, training=False))

    def predict(x, y):
        return [values.numpy() for values in scored(x, y)]

    def with_the_weights():
        spectra.update()
        return predict

    return with_the_weights


class MirroredDevices(OneDevice):
    """Several devices of one machine, on TensorFlow.

    Args:
      devices: list of logical devices.
    """

    def __init__(self, devices):
        # It tells of every collective operation.
        tf.get_logger().setLevel("WARNING")
        self._strategy = tf.distribute.MirroredStrategy(
            [device.name for device in devices]
        )
        self.count = len(devices)

    def building(self):
        return self._strategy.scope()

    def predictor(self, model):
        @tf.function
        def scored(x, y):
            return model.scored(x, y, model(x))

        def predict(x, y):
            def rows_of_replica(array):
                parts = np.split(array, self.count)
                return (
                    self._strategy.experimental_distribute_values_from_function(
                        lambda context: tf.constant(
                            parts[context.replica_id_in_sync_group]
                        )
                    )
                )

            split = tf.nest.map_structure(rows_of_replica, (x, y))
            return [
                np.concatenate(
                    [
                        part.numpy()
                        for part in self._strategy.experimental_local_results(
                            values
                        )
                    ]
                )
                for values in self._strategy.run(scored, args=split)
            ]

        return lambda: predict


class ShardedDevices(OneDevice):
    """All devices of this process and of the others in its cluster, on JAX."""

    def __init__(self):
        import jax

        self.count = jax.device_count()
        self.is_first = jax.process_index() == 0
        self.is_alone = jax.process_count() == 1
        # Keras looks it up when it makes a variable and when it takes a batch,
        # of which each process then gives its part.
        self._distribution = keras.distribution.DataParallel(
            auto_shard_dataset=False  # `own_part` does, and keeps the length
        )
        keras.distribution.set_distribution(self._distribution)

    @contextlib.contextmanager
    def by_itself(self):
        # Keras makes an optimiser, to look at its attributes, when it saves;
        # variables of all devices would wait for the other processes.
        keras.distribution.set_distribution(None)
        try:
            yield
        finally:
            keras.distribution.set_distribution(self._distribution)

    def own_part(self, batches):
        import jax

        if self.is_alone:
            return batches

        def rows(tensor):
            size = tensor.shape[0] // jax.process_count()
            return tensor[size * jax.process_index() :][:size]

        return batches.map(
            lambda *batch: tf.nest.map_structure(rows, batch)
        ).prefetch(tf.data.AUTOTUNE)

    def predictor(self, model):
        import jax

        mesh = self._distribution.device_mesh.backend_mesh
        replicated = jax.sharding.NamedSharding(
            mesh, jax.sharding.PartitionSpec()
        )

        def scored(weights, x, y):
            outputs, _ = model.stateless_call(*weights, x)
            return model.scored(x, y, outputs)

        # Every process gets the logits of all.
        compiled = jax.jit(scored, out_shardings=replicated)

        def own_rows(array):
            return jax.make_array_from_process_local_data(
                self._distribution.get_data_layout(array.shape).backend_layout,
                np.split(array, jax.process_count())[jax.process_index()],
            )

        def with_the_weights():
            weights = [
                [variable.value for variable in variables]
                for variables in (
                    model.trainable_variables,
                    model.non_trainable_variables,
                )
            ]

            def predict(x, y):
                x, y = jax.tree.map(own_rows, (x, y))
                found = compiled(weights, x, y)
                return [np.asarray(values) for values in found]

            return predict

        return with_the_weights

    def largest(self, value):
        from jax.experimental import multihost_utils

        return int(multihost_utils.process_allgather(np.int32(value)).max())
