"""Trains by `fit`; saves, writes summaries and evaluates between steps."""

import contextlib
import pathlib
import sys
import time

import keras
import numpy as np
from tqdm import tqdm

from common.errors import (
    Interrupted,
    StopSignal,
    UserError,
    handling_signals,
    optional_output,
    shell_command,
)
from common.files import make_folder, sole_trainer
from input_data import keys
from models.optimizer import make_schedule
from training import best, checkpoint, run_report, verbose_summaries
from training.start import start
from training.steps_per_execution import choose_steps, combine_steps
from training.summaries import SummaryWriter


@optional_output()
def train(config, strategy, evaluate=None):
    """Trains to `max_steps`, or until `patience` ends the training.

    It begins with the newest checkpoint, if there is one. Every `eval_every`
    steps `evaluate` is called with the path of a new checkpoint. After a
    signal, `train` finishes the steps in progress, saves, and raises
    Interrupted. Raises UserError if the loss or a weight is not finite.
    """
    directory = make_folder(pathlib.Path(config.summary_dir) / "train")
    stop = StopSignal()

    def leave(number, frame):
        raise Interrupted("Stopped outside of the training steps", number)

    first_handler = leave if strategy.count == 1 else stop
    lock = sole_trainer if strategy.is_first else contextlib.nullcontext
    with lock(directory), handling_signals(first_handler):
        run = start(config, strategy, directory)
        trainer = Trainer(run, strategy, directory, stop, evaluate)
        trainer.run()
    clock = trainer.clock
    print(f"Trained to step {trainer.step}: {trainer.path}")
    if config.validate and (found := best.best_of(directory)):
        print(
            f"Smallest validation error: {found.wrong} of {found.num_examples} "
            f"wrong at step {found.step}: {directory.with_name('best')}"
        )
    if trainer.step > run.step:
        logdir = shell_command([f"--logdir={config.summary_dir}"])
        print(
            f"{trainer.step - run.step} steps in "
            f"{clock.run_seconds:.{int(clock.run_seconds < 10)}f} s, "
            f"{clock.images_per_second:,.0f} images/s\n"
            f"Curves: tensorboard {logdir}\n"
            f"Evaluate by: {config.evaluation_command()}"
        )
        if run.pipeline.spec.note is not None:
            print(run.pipeline.spec.note)


class Clock:
    """Measures laps of steps; `seconds` includes those of earlier runs."""

    def __init__(self, batch_size, seconds=0.0):
        self.seconds = self._seconds_before = seconds
        self._batch_size, self._images = batch_size, 0
        self._last_point = (0, seconds)
        self.restart()

    def restart(self):
        """Begins a lap; the time before it does not count."""
        self._lap_start = time.monotonic()

    def lap(self, steps):
        """Ends a lap of `steps` steps and begins the next lap."""
        self.seconds += time.monotonic() - self._lap_start
        self._images += steps * self._batch_size
        self.restart()

    @property
    def run_seconds(self):
        return self.seconds - self._seconds_before

    @property
    def images_per_second(self):
        """Images/s of this run; None before the end of its first lap."""
        return self._images / self.run_seconds if self._images else None

    def point(self):
        """Images/s since the previous `point()`; None if no lap ended since."""
        images, seconds = self._last_point
        self._last_point = self._images, self.seconds
        images = self._images - images
        return images / (self.seconds - seconds) if images else None


class Trainer(keras.callbacks.Callback):
    """Runs a training; is itself the callback that `fit` gets.

    The clock omits checkpoints, evaluations and the first call, which compiles.
    """

    def __init__(self, run, strategy, directory, stop, evaluate):
        super().__init__()
        self._run, self._config = run, run.config
        self._directory, self._strategy = directory, strategy
        self._stop, self._evaluate = stop, evaluate
        self.step = run.step
        self.clock = Clock(run.config.batch_size, run.seconds)
        self.set_model(run.model)
        self._schedule = make_schedule(run.model, run.config.max_steps)

    @property
    def path(self):
        return checkpoint.checkpoint_path(self._directory, self.step)

    def run(self):
        config, run = self._config, self._run
        if not self._is_last():
            if run.latest and self._is_due(config.eval_every):
                self._evaluate(self.path)  # it may have been interrupted
            if not self._ends_early():
                self._fit()
        if self._is_last():
            if config.eval_every:
                self._evaluate(self.path)
        elif self._ends_early():
            print(
                f"Stopped at step {self.step}: the last {config.patience} "
                "evaluations had no smaller validation error"
            )
        else:
            raise Interrupted(
                f"Stopped at step {self.step}, saved {self.path}",
                self._stop.number,
            )
        path = self._directory.with_name("run.json")
        # An earlier run may have been killed before it wrote this.
        is_new = self.step > self._run.step or not path.exists()
        if self._strategy.is_first and is_new:
            found = best.best_of(self._directory) if config.validate else None
            ended = self.step, self.clock, found
            run_report.write(path, config, self.model, *ended)

    def _ends_early(self):
        known = self._config, self._directory, self.step
        return self._config.patience is not None and best.ends_early(*known)

    def _fit(self):
        config, run = self._config, self._run
        pipeline = run.pipeline
        if self.model.row.pretrained and self._strategy.count == 1:
            folder = make_folder(config.features_dir or config.summary_dir)
            pipeline = self.model.training_data(pipeline, config.seed, folder)
        batches = pipeline.training_batches(
            config.batch_size, config.seed, run.step, config.max_steps
        )
        batches = self._strategy.shard(batches)
        events = run.step, config.summary_step, config.save_step
        events += (config.eval_every or 0,)
        self._steps_per_call = choose_steps(
            self.model, config.batch_size, self._strategy.count, events
        )
        batches = combine_steps(self.model, batches, self._steps_per_call)
        self._progress = tqdm(
            total=config.max_steps,
            initial=run.step,
            unit="step",
            mininterval=0.1 if sys.stderr.isatty() else 10,
            disable=not self._strategy.is_first,
        )
        # The bar is closed before an error is printed.
        with (
            self._progress,
            run.pipeline.user_errors(),
            handling_signals(self._stop),
        ):
            # The pipeline shuffles.
            self.model.fit(batches, callbacks=[self], shuffle=False, verbose=0)

    def _is_last(self):
        return self.step == self._config.max_steps

    def _is_due(self, every):
        return every is not None and self.step % every == 0

    def on_train_begin(self, logs=None):
        if self._strategy.is_first:
            first = self._run.checkpoint(self.step, self.clock.seconds)
            self._writer = SummaryWriter(self._directory)
            self._writer.hparams(first)
            self._schedule(self.step)  # JAX compiles it
        self.clock.restart()

    def on_train_batch_end(self, batch, logs=None):
        config, clock = self._config, self.clock
        steps = min(self._steps_per_call, config.max_steps - self.step)
        is_first_call = self.step == self._run.step
        self.step += steps
        # All processes of a cluster stop after the same step.
        signal = self._strategy.max_over_processes(self._stop.number)
        is_last = signal or self._is_last()
        is_summarized = self._is_due(config.summary_step)
        is_evaluated = self._is_due(config.eval_every)
        is_saved = is_last or is_evaluated or self._is_due(config.save_step)
        if not config.allow_nonfinite:
            self._require_finite(logs, is_saved)
        # Reading the loss waited for the device, so that the lap is a whole
        # step. With --allow_nonfinite the wait falls into the next lap.
        if is_first_call and not self._is_last():
            clock.restart()
        else:
            clock.lap(steps)
        speed = clock.point() if is_summarized else None
        if self._strategy.is_first:
            shown = {name: logs[name] for name in ("loss", "accuracy")}
            self._progress.set_postfix(shown, refresh=False)
            self._progress.update(steps)
            if is_summarized:
                self._write_summaries(logs, speed)
            if is_saved:
                saved = self._run.checkpoint(self.step, clock.seconds)
                with self._strategy.undistributed():
                    checkpoint.save(self._directory, self.model, saved)
                if config.keep:
                    found = best.best_of(self._directory)
                    kept = config.keep, found and found.step
                    checkpoint.remove_old(self._directory, *kept)
        if is_summarized:
            self.model.reset_metrics()
        if is_evaluated and not is_last:  # the last one is, after `fit`
            self._evaluate(self.path)
        if is_saved:
            clock.restart()
        if signal:
            self._stop.number = signal
        if signal or (is_evaluated and self._ends_early()):
            self.model.stop_training = True

    def _require_finite(self, logs, is_saved):
        # The loss is that of the weights before the step.
        values = [logs["loss"]]
        if is_saved:  # on JAX `self.model` copies all weights
            model = self.model
            values += [*model.variables, *model.optimizer.variables]
        arrays = map(keras.ops.convert_to_numpy, values)
        if not all(np.isfinite(array).all() for array in arrays):
            raise UserError(
                f"the loss or a weight is not finite at step {self.step}, "
                "which is not saved. Try a smaller learning_rate, or "
                "--allow_nonfinite to continue"
            )

    def _write_summaries(self, logs, speed):
        step, size = self.step, self._config.batch_size
        # The reference's tags; `loss`, its total_loss, is evaluations' name.
        scalars = {**logs, "total_loss": logs["loss"]}
        scalars["almost_correct_batch"] = scalars.pop("almost_accuracy") * size
        scalars["correct_prediction_batch"] = logs["accuracy"] * size
        # Not from the optimizer: asking the model copies all weights on JAX.
        scalars["learning_rate"] = float(self._schedule(step))
        if speed is not None:
            scalars["images_per_second"] = speed
        self._writer.scalars(scalars, step)
        # At every tenth point of the curves; the batch of this step again.
        is_tenth = self._is_due(10 * self._config.summary_step)
        if self.model.hparams.verbose and is_tenth:
            ((x, y),) = self._run.pipeline.training_batches(
                size, self._config.seed, step - 1, step
            )
            writer, model = self._writer, self.model
            verbose_summaries.write_layers(writer, model, x[keys.IMAGES], step)
            verbose_summaries.write_reconstructions(writer, model, x, y, step)
