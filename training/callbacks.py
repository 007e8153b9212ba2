"""What happens after a training step: summaries, progress, checkpoints."""

import contextlib
import math

import keras
import numpy as np

import checkpoints
from old.errors import UserError
from old.progress import Progress
from training.summaries import training_scalars

# Verbose summaries are written with every tenth point of the curves.
VERBOSE_EVERY = 10


class _StepCallback(keras.callbacks.Callback):
    """Calls `on_step` with the number of steps done in the whole training."""

    def __init__(self, start):
        super().__init__()
        self._start = start

    def on_train_batch_end(self, batch, logs=None):
        self.on_step(self._start + batch + 1, logs)


class WriteSummaries(_StepCallback):
    """Writes scalars every `summary_step` steps.

    Losses and shares are means over those steps; the learning rate is that of
    the next step. Images per second are those after this run's first step,
    which traces and compiles it, unless the training has no other, and without
    the seconds in which `clock` was stopped.
    """

    def __init__(self, start, writer, config, schedule, clock):
        super().__init__(start)
        self._clock = clock
        self._writer = writer
        self._schedule = schedule
        self._every = config.summary_step
        self._batch_size = config.batch_size
        self._is_all = start == 0 and config.max_steps == 1

    def on_train_begin(self, logs=None):
        self._last = (self._start, self._clock.seconds())

    def on_step(self, step, logs):
        now = self._clock.seconds()
        before, last = self._last
        if step == self._start + 1:
            self._last = (step, now)
        if step % self._every:
            return
        self._last = (step, now)
        scalars = training_scalars(logs, self._batch_size)
        # Not the optimiser's: asking the model would fetch all weights on
        # backends that keep them elsewhere during `fit`.
        scalars["learning_rate"] = float(self._schedule(step))
        if before > self._start or self._is_all:
            images = (step - before) * self._batch_size
            scalars["images_per_second"] = images / (now - last)
        self._writer.scalars(scalars, step)


class WriteVerboseSummaries(_StepCallback):
    """Writes weights, activations and reconstructions now and then."""

    def __init__(self, start, writer, pipeline, config):
        super().__init__(start)
        self._writer = writer
        self._pipeline = pipeline
        self._config = config
        self._every = VERBOSE_EVERY * config.summary_step

    def on_step(self, step, logs):
        if step % self._every:
            return
        # The batch of this step once more: it depends on the step alone.
        ((x, y),) = self._pipeline.training_batches(
            self._config.batch_size, self._config.seed, step - 1, step
        )
        self._writer.weights(self.model, step)
        self._writer.activations(self.model, x, step)
        self._writer.reconstructions(self.model, x, y, step)


class ShowProgress(_StepCallback):
    """Shows loss and accuracy: means since the last summary."""

    def __init__(self, start, max_steps):
        super().__init__(start)
        self._max_steps = max_steps

    def on_train_begin(self, logs=None):
        self._progress = Progress(self._start, self._max_steps)

    def on_step(self, step, logs):
        self._progress.update(
            step, {name: logs[name] for name in ("loss", "accuracy")}
        )


class StopAfterSignal(_StepCallback):
    """Ends `fit` after the step in which a signal came; must come first.

    The processes of a cluster end after the same step, whichever of them the
    signal went to.
    """

    def __init__(self, start, stop, parallel):
        super().__init__(start)
        self._stop = stop
        self._parallel = parallel

    def on_step(self, step, logs):
        self._stop.wait()
        number = self._parallel.largest(self._stop.number or 0)
        if number:
            self._stop.heed(number)
            self.model.stop_training = True


class Save(_StepCallback):
    """Calls `save(model, step)` when it is due, and at the end.

    It is due every `save_step` steps and before every evaluation.
    """

    def __init__(self, start, config, save, stop):
        super().__init__(start)
        self._max_steps = config.max_steps
        self._every = (config.save_step, config.eval_every or config.save_step)
        self._save = save
        self._stop = stop

    def is_due(self, step):
        """Whether the step that is done is one to save."""
        due = any(step % every == 0 for every in self._every)
        return self._stop.is_heeded or due or step == self._max_steps

    def on_step(self, step, logs):
        if self.is_due(step):
            # Asking for the model brings its weights up to date on backends
            # that keep them elsewhere during `fit`.
            self._save(self.model, step)


class RequireFinite(_StepCallback):
    """Raises UserError when a number is infinite or NaN, before it is saved.

    The loss is looked at after every step. It is that of the weights before
    the step: after a step to save, weights and the optimiser's slots are
    looked at, too.
    """

    def __init__(self, start, directory, pipeline, config, save):
        super().__init__(start)
        self._directory = directory
        self._pipeline = pipeline
        self._config = config
        self._save = save

    def on_step(self, step, logs):
        if not math.isfinite(logs["loss"]):
            examples = self._pipeline.training_indices(
                step - 1, self._config.batch_size, self._config.seed
            ).numpy()
            self._stop(
                f"the loss is {logs['loss']} at step {step}, which is not "
                "saved. Training images of its batch: "
                f"{', '.join(map(str, examples))}"
            )
        if self._save.is_due(step):
            self._require_finite_variables(step)

    def _require_finite_variables(self, step):
        model = self.model
        for variable in [*model.variables, *model.optimizer.variables]:
            if not np.isfinite(keras.ops.convert_to_numpy(variable)).all():
                self._stop(
                    f"{variable.path} is no longer finite after step {step}, "
                    "which is not saved"
                )

    def _stop(self, reason):
        sound = None
        with contextlib.suppress(UserError):  # what it stops for comes first
            sound = checkpoints.newest_sound(self._directory)
        raise UserError(
            f"{reason}. Last sound checkpoint: "
            f"{sound.path if sound else 'none yet'}; its weights may have "
            "begun to diverge. A smaller learning_rate may help; "
            "--allow_nonfinite goes on regardless."
        )


class StartNextMean(_StepCallback):
    """Begins new running means after each summary; must come last."""

    def __init__(self, start, every):
        super().__init__(start)
        self._every = every

    def on_step(self, step, logs):
        if step % self._every == 0:
            self.model.reset_metrics()
