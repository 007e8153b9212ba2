"""What follows each training step: summaries, checkpoints, progress."""

import math
import sys
import time

import keras
import numpy as np
from tqdm import tqdm

from common.errors import UserError
from training import checkpoint
from training.summaries import SummaryWriter, training_scalars

# Verbose summaries are written with every tenth point of the curves.
_VERBOSE_EVERY = 10


class TrainingCallback(keras.callbacks.Callback):
    """Calls everything that follows a step, in order.

    Args:
      job: `train.Job`.
      start: int, steps done before this run.
      seconds: float, training time before this run.
      stop: `train.StopSignal`.
      evaluate: function of the path of a checkpoint, or None.

    Attributes:
      images_per_second: float, in this run, or None before it has steps.
    """

    def __init__(self, job, start, seconds, stop, evaluate):
        super().__init__()
        self._job = job
        self._start = start
        self._seconds_before = seconds
        self._stop = stop
        self._evaluate = evaluate
        self.images_per_second = None

    def on_train_begin(self, logs=None):
        job = self._job
        self._restart_clock(self._start)
        if not job.strategy.is_first:
            return
        self._writer = SummaryWriter(job.directory)
        self._writer.hparams(job.metadata(self._start, self._seconds_before))
        self._schedule = job.schedule()
        self._progress = tqdm(
            total=job.config.max_steps,
            initial=self._start,
            unit="step",
            mininterval=0.1 if sys.stderr.isatty() else 10,
        )

    def on_train_end(self, logs=None):
        if self._job.strategy.is_first:
            self._progress.close()

    def on_train_batch_end(self, batch, logs=None):
        config = self._job.config
        step = self._start + batch + 1
        # All processes of a cluster stop after the same step.
        signal = self._job.strategy.largest(self._stop.number or 0)
        is_saved = (
            signal
            or step == config.max_steps
            or step % config.save_step == 0
            or (config.eval_every and step % config.eval_every == 0)
        )
        if not config.allow_nonfinite:
            self._require_finite(step, logs, is_saved)
        self._measure_speed(step)
        if self._job.strategy.is_first:
            self._show(step, logs)
            if step % config.summary_step == 0:
                self._write_summaries(step, logs)
            if is_saved:
                self._save(step, signal)
        if step % config.summary_step == 0:
            self.model.reset_metrics()
        if signal:
            self._stop.number = signal
            self.model.stop_training = True

    def _require_finite(self, step, logs, is_saved):
        culprit = None if math.isfinite(logs["loss"]) else "the loss"
        if is_saved and culprit is None:
            # The loss is that of the weights before the step.
            model = self.model
            for variable in [*model.variables, *model.optimizer.variables]:
                values = keras.ops.convert_to_numpy(variable)
                if not np.isfinite(values).all():
                    culprit = variable.path
                    break
        if culprit is not None:
            valid = checkpoint.latest_valid(self._job.directory)
            raise UserError(
                f"{culprit} is not finite at step {step}, which is not saved; "
                f"last checkpoint: {valid.path if valid else 'none'}. Try a "
                "smaller learning_rate, or --allow_nonfinite to continue"
            )

    # Training time leaves out the first step of a run, which is traced and
    # compiled, and evaluations.

    def _restart_clock(self, step):
        self._first_timed = self._last_point = step
        self._began = self._last_time = time.monotonic()

    def _measure_speed(self, step):
        if step == self._start + 1 and step < self._job.config.max_steps:
            self._restart_clock(step)
            return
        images = (step - self._first_timed) * self._job.config.batch_size
        self.images_per_second = images / (time.monotonic() - self._began)

    def seconds(self):
        """Training time until now, including that of earlier runs."""
        return self._seconds_before + time.monotonic() - self._began

    def _show(self, step, logs):
        names = ("loss", "accuracy")
        self._progress.set_postfix(
            {name: f"{logs[name]:.4f}" for name in names}, refresh=False
        )
        self._progress.update(step - self._progress.n)

    def _write_summaries(self, step, logs):
        config, now = self._job.config, time.monotonic()
        scalars = training_scalars(logs, config.batch_size)
        # Not from the optimizer: asking the model copies all weights on JAX.
        scalars["learning_rate"] = float(self._schedule(step))
        if step > self._last_point:
            images = (step - self._last_point) * config.batch_size
            scalars["images_per_second"] = images / (now - self._last_time)
        self._last_point, self._last_time = step, now
        self._writer.scalars(scalars, step)
        is_verbose = self._job.architecture.hparams.verbose
        if is_verbose and step % (_VERBOSE_EVERY * config.summary_step) == 0:
            # The batch of this step again.
            ((x, y),) = self._job.pipeline.training_batches(
                config.batch_size, config.seed, step - 1, step
            )
            self._writer.weights(self.model, step)
            self._writer.activations(self.model, x, step)
            self._writer.reconstructions(self.model, x, y, step)

    def _save(self, step, signal):
        job, config = self._job, self._job.config
        paused = time.monotonic()
        with job.strategy.undistributed():
            path = checkpoint.save(
                job.directory,
                self.model,
                job.metadata(step, self.seconds()),
                config.keep,
            )
        # The last checkpoint is evaluated after `fit`.
        is_last = signal or step == config.max_steps
        if config.eval_every and not is_last and step % config.eval_every == 0:
            self._evaluate(path)
            paused = time.monotonic() - paused
            self._began += paused
            self._last_time += paused
