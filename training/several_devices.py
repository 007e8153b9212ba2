"""Several devices: those of one machine, or of several processes on JAX."""

import contextlib
import logging
import os
import sys

import keras
import numpy as np
import tensorflow as tf

from common.errors import UserError, user_errors
from training.strategies import Predictor, Strategy, compiled_on_jax

# JAX is imported in functions: other backends work without it.


class MirroredDevices(Strategy):
    """Several logical devices of one machine, on TensorFlow."""

    def __init__(self, devices):
        tf.get_logger().setLevel("WARNING")  # it logs every collective
        self._strategy = tf.distribute.MirroredStrategy(
            [device.name for device in devices]
        )
        self.count = len(devices)

    def scope(self):
        return self._strategy.scope()

    def make_predictor(self, model):
        strategy = self._strategy

        def compute(x, y):
            context = tf.distribute.get_replica_context()
            index = context.replica_id_in_sync_group
            x, y = tf.nest.map_structure(
                lambda rows: tf.stack(tf.split(rows, self.count))[index], (x, y)
            )
            return model.scores_and_losses(x, y, model(x))

        @tf.function
        def compiled(x, y):
            return [
                tf.concat(strategy.experimental_local_results(values), 0)
                for values in strategy.run(compute, args=(x, y))
            ]

        return Predictor(compiled)


class ShardedDevices(Strategy):
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
        yield
        keras.distribution.set_distribution(self._distribution)

    def shard(self, batches):
        return batches.map(
            lambda *batch: tf.nest.map_structure(_own_rows, batch)
        ).prefetch(2)

    def max_over_processes(self, value):
        from jax.experimental import multihost_utils

        return int(multihost_utils.process_allgather(np.int32(value)).max())

    def make_predictor(self, model):
        import jax
        from jax.experimental import multihost_utils

        compiled = compiled_on_jax(model)

        def distribute(array):
            layout = self._distribution.get_data_layout(array.shape)
            return jax.make_array_from_process_local_data(
                layout.backend_layout, _own_rows(array)
            )

        def predict(x, y):
            x, y = jax.tree.map(distribute, (x, y))
            # Every process gets the scores of all.
            return multihost_utils.process_allgather(compiled(x, y), tiled=True)

        return Predictor(predict)


def _own_rows(batch):
    """The rows of an array [B, ...] that this process computes."""
    import jax

    size = batch.shape[0] // jax.process_count()
    return batch[size * jax.process_index() :][:size]


def join_processes(config, num_processes):
    """Joins the other processes; all but the first print nothing."""
    address = config.coordinator_address or os.environ.get(
        "KERAS_DISTRIBUTION_JOB_ADDRESSES"
    )
    index = config.process_index
    if index is None:
        with user_errors(variable := "KERAS_DISTRIBUTION_PROCESS_ID"):
            index = int(os.environ.get(variable, -1))
    if not address or not 0 <= index < num_processes:
        raise UserError(
            f"--num_processes={num_processes} needs --coordinator_address="
            f"HOST:PORT and --process_index from 0 to {num_processes - 1}"
        )
    import jax

    logging.getLogger("jax").setLevel(logging.WARNING)
    # keras.distribution.initialize has no time-outs.
    jax.distributed.initialize(
        address.split(",")[0],
        num_processes,
        index,
        heartbeat_timeout_seconds=30,
        shutdown_timeout_seconds=60,
        # Cluster managers would choose GPUs against --device.
        cluster_detection_method="deactivate",
    )
    if index > 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
