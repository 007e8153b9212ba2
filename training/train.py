"""Trains by `fit`; saves, writes summaries and evaluates between steps."""

import contextlib
import dataclasses
import os
import pathlib
import sys
import uuid

import keras
import numpy as np
from tqdm import tqdm

from common.errors import (
    Interrupted,
    UserError,
    handling_signals,
    optional_output,
    shell_command,
)
from common.files import make_folder, remove_partial, sole_trainer
from input_data import keys, registry
from layers.backends import cpu_has_bfloat16_products, is_on_cpu
from models.optimizer import compile_model
from training import checkpoint, run_report
from training.clock import Clock
from training.formats import open_checkpoint
from training.steps_per_execution import choose_steps, combine_steps
from training.summaries import SummaryWriter


@optional_output()
def train(config, strategy, evaluate=None):
    """Trains to `max_steps`, from the newest checkpoint if there is one.

    Checkpoints and event files go to `<summary_dir>/train`. Every `eval_every`
    steps `evaluate` is called with the path of a new checkpoint. After a
    signal, `train` finishes the steps in progress, saves, and raises
    Interrupted; before the first step, one process raises it at once. Raises
    UserError if the loss or a weight is not finite.
    """
    directory = make_folder(pathlib.Path(config.summary_dir) / "train")
    signals = []

    def stop(number, frame):
        if signals:  # compiled code could turn an exception into another
            print("Stopped without saving", file=sys.stderr, flush=True)
            os._exit(128 + number)
        signals.append(number)

    def leave(number, frame):
        raise Interrupted("Stopped outside of the training steps", number)

    first_handler = leave if strategy.count == 1 else stop
    lock = sole_trainer if strategy.is_first else contextlib.nullcontext
    with lock(directory), handling_signals(first_handler):
        if strategy.is_first:
            remove_partial(directory)
        trainer = Trainer(config, strategy, directory, signals, stop, evaluate)
        trainer.run()
    print(f"Trained to step {trainer.step}: {trainer.path}")
    if trainer.step > trainer.start:
        seconds = trainer.clock.run_seconds
        logdir = shell_command([f"--logdir={config.summary_dir}"])
        print(
            f"{trainer.step - trainer.start} steps in "
            f"{seconds:.{int(seconds < 10)}f} s, "
            f"{trainer.clock.images_per_second:,.0f} images/s\n"
            f"Curves: tensorboard {logdir}\n"
            f"Evaluate by: {config.evaluation_command()}"
        )
        if trainer.pipeline.spec.note is not None:
            print(trainer.pipeline.spec.note)


class Trainer(keras.callbacks.Callback):
    """Runs a training; is itself the callback that `fit` gets.

    `step` counts all steps done, `start` those before this run. `clock` omits
    checkpoints, evaluations and the first call of the compiled train function.
    """

    def __init__(self, config, strategy, directory, signals, stop, evaluate):
        super().__init__()
        self._directory, self._strategy = directory, strategy
        self._signals, self._stop, self._evaluate = signals, stop, evaluate
        self._latest = checkpoint.latest_valid(
            directory, config.model, quarantine=strategy.is_first
        )
        if self._latest is not None:
            config = config.with_defaults_from(self._latest.run_settings)
        before = self._latest.run_settings if self._latest else {}
        self._id = before.get("id", uuid.uuid4().hex)  # tells trainings apart
        if config.eval_every and strategy.count > 1:
            raise UserError("--eval_every is for one device")
        if config.batch_size % strategy.count:
            raise UserError(
                f"--batch_size={config.batch_size} cannot be split over "
                f"{strategy.count} devices"
            )
        self._config = config
        if not (self._latest or config.init_checkpoint):
            # Before the images, whose reading may take long.
            network = checkpoint.Architecture.from_config(config, None, 1)
            network.hparams.check_initial_weights()
        self.pipeline = registry.load(config, train=True)
        spec = self.pipeline.spec
        self._architecture = checkpoint.Architecture.from_config(
            config, spec.shape, spec.num_targets
        )
        print(
            f"Training {self._architecture.model} on {config.dataset_name}: "
            f"{spec.num_images} images of {spec.shape.height}x"
            f"{spec.shape.width}x{spec.shape.depth}"
        )
        is_bfloat16 = config.dtype_policy == "mixed_bfloat16"
        if is_bfloat16 and is_on_cpu() and not cpu_has_bfloat16_products():
            print(
                "Note: --dtype_policy=float32 can be much faster on CPUs "
                "without bfloat16 instructions"
            )
        self.step, self.clock = 0, Clock(config.batch_size)
        with strategy.scope():
            # Weights, their gradients and Adam's moments.
            model = self._architecture.build(seed=config.seed, copies=4)
            if self._latest:
                compile_model(model, config.max_steps)
                self._resume(model)
            elif config.init_checkpoint:
                self._initialize(model)
            else:
                model.load_initial_weights()
                compile_model(model, config.max_steps)
        self.set_model(model)
        self.start = self.step
        self._schedule = model.make_schedule(model.hparams, config.max_steps)

    @property
    def path(self):
        return checkpoint.checkpoint_path(self._directory, self.step)

    def _checkpoint(self):
        spec = self.pipeline.spec
        run_settings = {
            **self._config.run_settings(),
            **spec.settings,
            **spec.split_fingerprints,
            "id": self._id,
            "num_images": spec.num_images,
            "seconds": self.clock.seconds,
        }
        return checkpoint.Checkpoint(
            self.step, self._architecture, run_settings, spec.class_names
        )

    def run(self):
        config = self._config
        if not self._is_last():
            if self._latest and self._is_due(config.eval_every):
                self._evaluate(self.path)  # it may have been interrupted
            self._fit()
        if not self._is_last():
            raise Interrupted(
                f"Stopped at step {self.step}, saved {self.path}",
                self._signals[0],
            )
        if self._strategy.is_first:
            # An earlier run may have been killed before it wrote run.json.
            path = self._directory.with_name("run.json")
            if self.step > self.start or not path.exists():
                shape = self._architecture.shape
                run_report.write(path, config, self.model, shape, self.clock)
        if config.eval_every:
            self._evaluate(self.path)

    def _fit(self):
        config = self._config
        pipeline = self.pipeline
        if self._strategy.count == 1:
            folder = make_folder(config.features_dir or config.summary_dir)
            pipeline = self.model.training_data(pipeline, config.seed, folder)
        batches = pipeline.training_batches(
            config.batch_size, config.seed, self.start, config.max_steps
        )
        batches = self._strategy.shard(batches)
        events = config.summary_step, config.save_step, config.eval_every or 0
        self._steps_per_call = choose_steps(
            self.model,
            self._architecture.shape,
            config.batch_size,
            self._strategy.count,
            (self.start, *events),
        )
        # It is closed before an error is printed.
        self._progress = tqdm(
            total=config.max_steps,
            initial=self.start,
            unit="step",
            mininterval=0.1 if sys.stderr.isatty() else 10,
            disable=not self._strategy.is_first,
        )
        with (
            self._progress,
            self.pipeline.user_errors(),
            handling_signals(self._stop),
        ):
            self.model.fit(
                combine_steps(self.model, batches, self._steps_per_call),
                callbacks=[self],
                shuffle=False,  # the pipeline shuffles
                verbose=0,
            )

    def _is_last(self):
        return self.step == self._config.max_steps

    def _is_due(self, every):
        return every is not None and self.step % every == 0

    def _resume(self, model):
        config, latest = self._config, self._latest
        dataset = latest.run_settings.get("dataset") or config.dataset_name
        saved, mine = latest.architecture, self._architecture
        reason = None
        if dataset != config.dataset_name:
            reason = "it is of another --dataset"
        elif saved.num_targets != mine.num_targets:
            reason = "it is of another --num_targets"
        elif not latest.has_optimizer_state:
            reason = "it has no optimizer state"
        elif (saved.hparams.ema > 0) != (mine.hparams.ema > 0):
            reason = "only one has `ema`"
        elif not latest.can_continue(mine):
            reason = "other weights are trained now"
        if reason:
            raise UserError(
                f"{latest.path} cannot be resumed: {reason}; choose another "
                "--summary_dir, and --init_checkpoint to start from its weights"
            )
        latest.check_same_data(config, self.pipeline.spec)
        if latest.step > config.max_steps:
            raise UserError(
                f"{latest.path} is beyond --max_steps={config.max_steps}"
            )
        latest.load(model, self._architecture)
        print(f"Resuming from {latest.path}")
        self.step = latest.step
        seconds = latest.run_settings.get("seconds", 0.0)
        self.clock = Clock(config.batch_size, seconds)
        before = dataclasses.asdict(saved.hparams) | latest.run_settings
        now = dataclasses.asdict(mine.hparams) | self._checkpoint().run_settings
        if now["schedule"] == "exponential":  # it does not depend on max_steps
            before.pop("max_steps", None)
        for name, value in now.items():
            if before.get(name, value) != value:
                print(f"Note: {name} was {before[name]} and is now {value}")

    def _initialize(self, model):
        """Compiles the model, loads `init_checkpoint`, and takes its step.

        Without the optimizer's state of the weights trained now, the training
        starts at step 0, as Adam corrects its moments for the number of steps.
        """
        config = self._config
        source = open_checkpoint(config.init_checkpoint, config.model)
        source.check_same_data(config, self.pipeline.spec)
        can_continue = source.can_continue(self._architecture)
        if config.init_weights_only or not can_continue:
            source.load(model, self._architecture)
            compile_model(model, config.max_steps)
        else:
            compile_model(model, config.max_steps)
            source.load(model, self._architecture)
            self.step = source.step
        model.optimizer.iterations.assign(self.step)
        if self.step >= config.max_steps:
            raise UserError(
                f"{source.path} starts at step {self.step}; give a larger "
                "--max_steps or --init_weights_only"
            )
        print(f"Starting from {source.path} at step {self.step}")

    def on_train_begin(self, logs=None):
        if self._strategy.is_first:
            self._writer = SummaryWriter(self._directory)
            self._writer.hparams(self._checkpoint())
            self._schedule(self.start)  # JAX compiles it
        self.clock.restart()

    def on_train_batch_end(self, batch, logs=None):
        config = self._config
        steps = min(self._steps_per_call, config.max_steps - self.step)
        is_first_call = self.step == self.start
        self.step += steps
        # All processes of a cluster stop after the same step.
        own_signal = max(self._signals, default=0)
        signal = self._strategy.max_over_processes(own_signal)
        is_last = signal or self._is_last()
        is_summarized = self._is_due(config.summary_step)
        is_evaluated = self._is_due(config.eval_every)
        is_saved = is_last or is_evaluated or self._is_due(config.save_step)
        if not config.allow_nonfinite:
            self._require_finite(logs, is_saved)
        # The device is done: the loss was read.
        if is_first_call and not self._is_last():
            self.clock.restart()
        else:
            self.clock.lap(steps)
        if self._strategy.is_first:
            self._show_progress(logs, steps)
            if is_summarized:
                self._write_summaries(logs)
            if is_saved:
                with self._strategy.undistributed():
                    saved, keep = self._checkpoint(), config.keep
                    checkpoint.save(self._directory, self.model, saved, keep)
        if is_summarized:
            self.model.reset_metrics()
        if is_evaluated and not is_last:  # the last one is, after `fit`
            self._evaluate(self.path)
        if is_saved:
            self.clock.restart()
        if signal:
            self._signals[:] = [signal]
            self.model.stop_training = True

    def _show_progress(self, logs, steps):
        shown = {name: logs[name] for name in ("loss", "accuracy")}
        self._progress.set_postfix(shown, refresh=False)
        self._progress.update(steps)

    def _require_finite(self, logs, is_saved):
        # The loss is that of the weights before the step.
        values = [logs["loss"]]
        if is_saved:  # on JAX `self.model` copies all weights
            model = self.model
            values += [*model.variables, *model.optimizer.variables]
        to_numpy = keras.ops.convert_to_numpy
        if not all(np.isfinite(to_numpy(value)).all() for value in values):
            raise UserError(
                f"the loss or a weight is not finite at step {self.step}, "
                "which is not saved. Try a smaller learning_rate, or "
                "--allow_nonfinite to continue"
            )

    def _write_summaries(self, logs):
        config, step = self._config, self.step
        batch_size = config.batch_size
        # The reference's tags; `loss`, its total_loss, is evaluations' name.
        scalars = {**logs, "total_loss": logs["loss"]}
        almost = scalars.pop("almost_accuracy") * batch_size
        scalars["almost_correct_batch"] = almost
        scalars["correct_prediction_batch"] = logs["accuracy"] * batch_size
        # Not from the optimizer: asking the model copies all weights on JAX.
        scalars["learning_rate"] = float(self._schedule(step))
        if (speed := self.clock.point()) is not None:
            scalars["images_per_second"] = speed
        self._writer.scalars(scalars, step)
        is_verbose = self._architecture.hparams.verbose
        # At every tenth point of the curves; the batch of this step again.
        if is_verbose and step % (10 * config.summary_step) == 0:
            ((x, y),) = self.pipeline.training_batches(
                config.batch_size, config.seed, step - 1, step
            )
            self._writer.layers(self.model, x[keys.IMAGES], step)
            self._writer.reconstructions(self.model, x, y, step)
