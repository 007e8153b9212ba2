"""Devices of a job: choice, memory, and data parallelism.

`use` yields a strategy, one of three classes with the same methods: every
device holds all weights and computes a part of each batch. TensorFlow reads
the data under every Keras backend; under the others it leaves the GPUs alone.
"""

import contextlib
import ctypes
import os
import subprocess

import keras
import numpy as np
import tensorflow as tf

from common.errors import UserError
from layers.kept_spectra import KeptSpectra


@contextlib.contextmanager
def use(config, command):
    """Selects the devices; must be entered before any is used.

    Args:
      config: `Config`.
      command: string, the name of the command, for messages of a cluster.

    Yields:
      `OneDevice` or one of its subclasses.

    Raises:
      UserError: if there are no such devices, or the backend cannot use them.
    """
    backend = keras.backend.backend()
    if config.deterministic:
        if backend != "tensorflow":
            raise UserError("--deterministic needs KERAS_BACKEND=tensorflow")
        tf.config.experimental.enable_op_determinism()
    if config.num_gpus > 1 and backend == "torch":
        raise UserError("--num_gpus needs KERAS_BACKEND=tensorflow or jax")
    scope = contextlib.nullcontext()
    if backend == "tensorflow":
        _select_on_tensorflow(config)
    else:
        tf.config.set_visible_devices([], "GPU")
        _keep_freed_memory()
        if backend == "jax":
            _select_on_jax(config)
        else:
            scope = _select_on_torch(config)
    num_processes = config.num_processes or int(
        os.environ.get("KERAS_DISTRIBUTION_NUM_PROCESSES", 1)
    )
    cluster = contextlib.nullcontext()
    if num_processes > 1:
        from training.cluster import joined

        cluster = joined(config, num_processes, command)
    with scope, cluster:
        yield _make_strategy(config)


def _gpu_range(config):
    """The indices of the GPUs to use; None for the CPU."""
    if config.device == "cpu":
        return None
    first = int((config.device or "").partition(":")[2] or 0)
    return range(first, first + config.num_gpus)


def _require_gpus(config, available, needed):
    """Raises UserError if flags ask for GPUs that do not exist."""
    is_asked = (
        config.device or config.gpu_memory_limit or config.num_gpus > 1
    ) and config.device != "cpu"
    if is_asked and available < needed:
        raise UserError(
            f"--device={config.device or 'gpu'} --num_gpus={config.num_gpus}: "
            f"{keras.backend.backend()} finds {available} GPUs"
        )


def _select_on_tensorflow(config):
    indices = _gpu_range(config)
    if indices is None:
        tf.config.set_visible_devices([], "GPU")
        if config.num_gpus > 1:
            (cpu,) = tf.config.list_physical_devices("CPU")
            tf.config.set_logical_device_configuration(
                cpu, [tf.config.LogicalDeviceConfiguration()] * config.num_gpus
            )
        return
    gpus = tf.config.list_physical_devices("GPU")
    _require_gpus(config, len(gpus), indices.stop)
    gpus = gpus[indices.start : indices.stop]
    tf.config.set_visible_devices(gpus, "GPU")
    for gpu in gpus:
        if config.gpu_memory_limit is None:
            tf.config.experimental.set_memory_growth(gpu, True)
        else:
            limit = tf.config.LogicalDeviceConfiguration(
                memory_limit=config.gpu_memory_limit
            )
            tf.config.set_logical_device_configuration(gpu, [limit])


def _select_on_jax(config):
    import jax

    indices = _gpu_range(config)
    if indices is None:
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", config.num_gpus)
        return
    jax.config.update("jax_cuda_visible_devices", ",".join(map(str, indices)))
    if config.gpu_memory_limit is None:
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    else:
        # JAX takes a share of the memory, and knows it only once started.
        memory = _gpu_megabytes()
        _require_gpus(config, len(memory), indices.stop)
        share = config.gpu_memory_limit / min(memory[i] for i in indices)
        os.environ["XLA_CLIENT_MEM_FRACTION"] = str(min(1.0, share))


def _gpu_megabytes():
    command = ["nvidia-smi", "--query-gpu=memory.total"]
    command.append("--format=csv,noheader,nounits")
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        command.append(f"--id={os.environ['CUDA_VISIBLE_DEVICES']}")
    try:
        result = subprocess.run(
            command, capture_output=True, check=True, text=True
        )
    except (OSError, subprocess.CalledProcessError):
        return []
    return [int(line) for line in result.stdout.split()]


def _select_on_torch(config):
    import torch

    indices = _gpu_range(config)
    if indices is None:
        return keras.device("cpu")
    available = torch.cuda.device_count()
    _require_gpus(config, available, indices.stop)
    if available <= indices.start:
        return contextlib.nullcontext()
    if config.gpu_memory_limit is not None:
        total = torch.cuda.get_device_properties(indices.start).total_memory
        torch.cuda.set_per_process_memory_fraction(
            min(1.0, config.gpu_memory_limit * 2**20 / total), indices.start
        )
    return keras.device(f"gpu:{indices.start}")


def _keep_freed_memory():
    """Lets this process reuse the memory of a step for the next one.

    JAX and torch return it to Linux, which clears every page: on a CPU a
    quarter of a training step of JAX. TensorFlow keeps its own.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:  # glibc, see malloc.h
        trim_threshold, mmap_threshold, arena_max = -1, -3, -8
        set_option(arena_max, 1)  # other arenas cannot exceed 64 MB
        set_option(mmap_threshold, 2**30)
        set_option(trim_threshold, 2**31 - 1)


def _make_strategy(config):
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        if config.device != "cpu":
            is_gpu = jax.local_devices()[0].platform != "cpu"
            available = len(jax.local_devices()) if is_gpu else 0
            _require_gpus(config, available, config.num_gpus)
        if config.num_gpus > 1 or jax.process_count() > 1:
            return ShardedDevices()
    elif config.num_gpus > 1:
        kind = "CPU" if config.device == "cpu" else "GPU"
        return MirroredDevices(
            tf.config.list_logical_devices(kind)[: config.num_gpus]
        )
    return OneDevice()


class OneDevice:
    """One device, and what the other strategies share.

    Attributes:
      count: int, devices in all, of every process.
      is_first: bool, whether this process writes files.
    """

    count = 1
    is_first = True

    def require_even_split(self, batch_size):
        """Raises UserError unless a batch splits evenly over the devices."""
        if batch_size % self.count:
            raise UserError(
                f"--batch_size={batch_size} cannot be split over {self.count} "
                "devices"
            )

    def round_up(self, batch_size):
        """The next batch size that splits evenly over the devices."""
        return -(-batch_size // self.count) * self.count

    def scope(self):
        """A context in which models are built, compiled and loaded."""
        return contextlib.nullcontext()

    def undistributed(self):
        """A context in which this process saves without the others."""
        return contextlib.nullcontext()

    def shard(self, batches):
        """The rows of each batch that this process computes.

        Args:
          batches: `tf.data.Dataset` of (x, y).
        """
        return batches

    def largest(self, value):
        """The largest of the ints of all processes."""
        return value

    def make_predict_fn(self, model):
        """Compiles the prediction of a batch.

        Args:
          model: `models.classifier.Classifier`, built in `scope`.

        Returns:
          Function `begin()`, to be called whenever the weights have changed.
          It returns a function of x and y, dicts of NumPy arrays [B, ...] with
          B divisible by `count`, that returns logits [B, classes] and losses
          [B] as NumPy arrays.
        """
        if keras.backend.backend() == "tensorflow":
            return _predict_fn_on_tensorflow(model)

        def predict(x, y):
            outputs = model.predict_on_batch(x)
            return [
                keras.ops.convert_to_numpy(values)
                for values in model.logits_and_losses(x, y, outputs)
            ]

        return lambda: predict


def _predict_fn_on_tensorflow(model):
    spectra = KeptSpectra()
    if model.xla != "auto":
        model.jit_compile = model.xla

    @tf.function(jit_compile=model.jit_compile)
    def compiled(x, y):
        with spectra.in_use():
            return model.logits_and_losses(x, y, model(x, training=False))

    def predict(x, y):
        return [values.numpy() for values in compiled(x, y)]

    def begin():
        spectra.update()
        return predict

    return begin


class MirroredDevices(OneDevice):
    """Several devices of one machine, on TensorFlow.

    Args:
      devices: list of logical devices.
    """

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

        @tf.function
        def compiled(x, y):
            return model.logits_and_losses(x, y, model(x))

        def split(array):
            parts = np.split(array, self.count)
            return strategy.experimental_distribute_values_from_function(
                lambda context: tf.constant(
                    parts[context.replica_id_in_sync_group]
                )
            )

        def predict(x, y):
            inputs = tf.nest.map_structure(split, (x, y))
            return [
                np.concatenate(strategy.experimental_local_results(values))
                for values in strategy.run(compiled, args=inputs)
            ]

        return lambda: predict


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
        # Keras creates an optimizer when it saves, whose variables would wait
        # for the other processes.
        keras.distribution.set_distribution(None)
        try:
            yield
        finally:
            keras.distribution.set_distribution(self._distribution)

    def shard(self, batches):
        import jax

        if jax.process_count() == 1:
            return batches

        def rows(tensor):
            size = tensor.shape[0] // jax.process_count()
            return tensor[size * jax.process_index() :][:size]

        return batches.map(
            lambda *batch: tf.nest.map_structure(rows, batch)
        ).prefetch(tf.data.AUTOTUNE)

    def largest(self, value):
        from jax.experimental import multihost_utils

        return int(multihost_utils.process_allgather(np.int32(value)).max())

    def make_predict_fn(self, model):
        import jax

        replicated = jax.sharding.NamedSharding(
            self._distribution.device_mesh.backend_mesh,
            jax.sharding.PartitionSpec(),
        )

        def stateless(weights, x, y):
            outputs, _ = model.stateless_call(*weights, x)
            return model.logits_and_losses(x, y, outputs)

        # Every process gets the logits of all.
        compiled = jax.jit(stateless, out_shardings=replicated)

        def own_rows(array):
            return jax.make_array_from_process_local_data(
                self._distribution.get_data_layout(array.shape).backend_layout,
                np.split(array, jax.process_count())[jax.process_index()],
            )

        def begin():
            weights = [
                [variable.value for variable in variables]
                for variables in (
                    model.trainable_variables,
                    model.non_trainable_variables,
                )
            ]

            def predict(x, y):
                x, y = jax.tree.map(own_rows, (x, y))
                return [np.asarray(v) for v in compiled(weights, x, y)]

            return predict

        return begin
