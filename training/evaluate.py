"""Evaluates a checkpoint, an ensemble, or a training while it runs."""

import contextlib
import dataclasses
import itertools
import pathlib
import sys
import time

import keras
import numpy as np
from tqdm import tqdm

import resolve
from common.errors import UserError
from common.files import is_training, read_json
from config import EVAL_BATCH_SIZE
from input_data import keys, registry
from layers.backends import is_on_cpu
from models.architecture import Architecture
from training import best
from training import checkpoint as checkpoints
from training.results import Results
from training.scores import Predictions
from training.strategies import OneDevice

# On GPUs: the largest batch, the pixels of its images, and batches in flight.
_GPU_BATCH, _GPU_PIXELS, _PENDING = 1000, 2**20, 8
# Seconds to wait for a training to start or to be resumed.
_START_TIMEOUT = 60


class Evaluator:
    """Evaluates checkpoints on one split of one data set.

    They supply the settings of network and data that `config` leaves open; TF1
    checkpoints supply none, HDF5 files only those of the network. `model` is
    the network of the checkpoint loaded last.
    """

    def __init__(self, config, strategy=None):
        self._config = config
        self._strategy = strategy or OneDevice()
        self._pipelines = {}
        self._architecture = None
        self.model = None

    def load(self, checkpoint):
        """Returns the `Config`, network and `Pipeline` of a checkpoint.

        The next call of `load` may load other weights into the same network.
        Raises UserError if the checkpoint does not fit the settings or data.
        """
        config = resolve.for_evaluation(self._config, checkpoint)
        data = dataclasses.replace(config, model=None)  # for all models
        if data not in self._pipelines:
            self._pipelines[data] = registry.load(config, train=False)
        pipeline = self._pipelines[data]
        spec = pipeline.spec
        checkpoint.check_same_data(config, spec)
        architecture = Architecture.from_config(
            config, spec.shape, spec.num_targets, checkpoint.architecture
        )
        if self._architecture != architecture:
            with self._strategy.scope():
                self.model = architecture.build()
            if config.crops > 1 and not self.model.has_lengths:
                raise UserError("--crops is for lengths of class capsules")
            self._predictor = self._strategy.make_predictor(self.model)
            self._architecture = architecture
        checkpoint.load(self.model, architecture)
        return config, self.model, pipeline

    def predict(self, checkpoint):
        """The `Predictions` of a checkpoint; raises the errors of `load`."""
        config, _, pipeline = self.load(checkpoint)
        start = time.perf_counter()
        labels, logits, losses = self._predict(pipeline)
        if config.crops > 1:
            logits = _mean_of_crops(logits, pipeline, self._predict)
        speed = len(labels) / (time.perf_counter() - start)
        return Predictions(
            labels, logits, losses, pipeline, config, speed, checkpoint
        )

    def _predict(self, pipeline):
        shape, devices = pipeline.spec.shape, self._strategy.count
        batch_size = EVAL_BATCH_SIZE
        if not is_on_cpu():
            fitting = _GPU_PIXELS // (shape.height * shape.width)
            batch_size = max(batch_size, min(_GPU_BATCH, fitting))
        batch_size = -(-batch_size // devices) * devices
        self._predictor.refresh()
        parts, to_numpy = [], keras.ops.convert_to_numpy
        num_examples = pipeline.spec.num_examples
        with tqdm(
            total=num_examples,
            unit="image",
            mininterval=0.1 if sys.stderr.isatty() else 10,
            leave=False,
        ) as progress:
            for x, y in pipeline.evaluation_batches(batch_size):
                count = len(y[keys.LABELS])
                # All batches have one size: the last repeats its last row.
                rows = np.minimum(range(batch_size), count - 1)
                x, y = ({k: v[rows] for k, v in d.items()} for d in (x, y))
                predicted = self._predictor.predict(x, y)
                parts.append([y[keys.LABELS] > 0, *predicted])
                if len(parts) > _PENDING:  # inputs could fill a GPU's memory
                    to_numpy(parts[-_PENDING][-1])
                progress.update(count)
        return [
            np.concatenate([*map(to_numpy, column)])[:num_examples]
            for column in zip(*parts, strict=True)
        ]


def _mean_of_crops(activations, pipeline, predict):
    """Mean activations over the central crop and 12 others.

    As in Hinton, Sabour, Frosst 2018, section 5. `predict(pipeline)` returns
    labels, activations [N, classes] and losses.
    """
    shifts = [*itertools.product((1, 2, 3), (-1, 1), (-1, 1))]
    total = _normalized(activations)
    for pixels, down, right in shifts:
        moved = pipeline.moved((down * pixels, right * pixels))
        total += _normalized(predict(moved)[1])
    return total / (1 + len(shifts))


def _normalized(activations):
    sums = activations.sum(axis=-1, keepdims=True)
    return activations / np.maximum(sums, np.finfo("float32").tiny)


@contextlib.contextmanager
def evaluator_of(config, strategy):
    """A context that yields a function to evaluate and report a checkpoint."""
    evaluator = Evaluator(config, strategy)
    with Results(config, strategy) as results:

        def evaluate(path, draws=True):
            checkpoint = checkpoints.read_checkpoint(path, config.model)
            predictions = evaluator.predict(checkpoint)
            best.record(predictions)
            results.report(f"{path}:\n", predictions, checkpoint.step, draws)
            return checkpoint

        yield evaluate


def evaluate_continuously(config, strategy):
    """Evaluates the checkpoints of a training, each once, as they appear.

    If no training runs in `<summary_dir>/train` at the start, only the newest
    checkpoint is evaluated, unless `eval_all`. Ends after the last step's
    checkpoint, after `eval_timeout` seconds without a new one, or after a
    minute without a training. Raises UserError if there is no checkpoint.
    """
    directory = pathlib.Path(config.summary_dir) / "train"
    report = directory.with_name("run.json")  # --patience ends early
    seen, last, stop_time = set(), None, None
    last_time = time.monotonic()
    with evaluator_of(config, strategy) as evaluate:
        while True:
            is_running = is_training(directory)
            found = checkpoints.find_all(directory)
            new = [path for _, path in found if path not in seen]
            seen.update(new)
            if new and not (last or is_running or config.eval_all):
                latest = checkpoints.latest_valid(directory, config.model)
                new = [latest.path] if latest else []
            for path in new:
                try:
                    last = evaluate(path, draws=path == new[-1])
                    last_time = time.monotonic()
                except UserError as error:
                    is_damaged = isinstance(error, checkpoints.DamagedError)
                    if path.exists() and not is_damaged:
                        raise  # else --keep may have removed it
                    print(f"Warning: {error}; not evaluated", flush=True)
            is_done = last and last.step in (
                last.run_settings.get("max_steps"),
                report.exists() and read_json(report, "run").get("steps"),
            )
            now = time.monotonic()
            left = last_time + config.eval_timeout - now
            if is_running:
                stop_time = None
            else:
                if not (stop_time or is_done):
                    message = f"Waiting for a training in {directory}"
                    print(message, file=sys.stderr)
                stop_time = stop_time or now
                since = max(last_time, stop_time)
                left = min(left, since + _START_TIMEOUT - now)
            if left <= 0 or (is_done and not is_running):
                break
            time.sleep(min(config.eval_interval if is_running else 1, left))
    if last is None:
        raise UserError(f"there is no checkpoint to evaluate in {directory}")
