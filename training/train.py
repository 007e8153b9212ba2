"""Training: `fit` on the batches of the remaining steps."""

import contextlib
import dataclasses
import pathlib
import shlex

import keras

from common.errors import Interrupted, UserError, handling_signals
from common.files import make_folder, remove_partial, sole_trainer
from config import Config
from input_data import registry
from input_data.pipeline import Pipeline
from models.optimizer import compile_model
from models.registry import model_class
from training import checkpoint
from training.callbacks import TrainingCallback
from training.devices import OneDevice


@dataclasses.dataclass(frozen=True)
class Job:
    """Settings, data, network and devices of one training."""

    config: Config
    strategy: OneDevice
    pipeline: Pipeline
    architecture: checkpoint.Architecture
    directory: pathlib.Path

    def metadata(self, step, seconds):
        """What the checkpoint of a step records."""
        spec = self.pipeline.spec
        training = {
            **self.config.recorded(),
            **spec.split_fingerprints,
            "num_images": spec.num_images,
            "seconds": seconds,
        }
        return checkpoint.Metadata(
            step, self.architecture, training, spec.class_names
        )

    def schedule(self):
        """The learning rate by step."""
        cls = model_class(self.architecture.model)
        return cls.make_schedule(
            self.architecture.hparams, self.config.max_steps
        )


def train(config, strategy=None, evaluate=None):
    """Trains to `max_steps`, from the newest checkpoint if there is one.

    Checkpoints and event files go to `<summary_dir>/train`. SIGTERM, Ctrl-C
    and SIGHUP end the training after a step, which is saved.

    Args:
      config: `Config`.
      strategy: `devices.OneDevice`, the default, or one of its subclasses.
      evaluate: function of the path of a checkpoint, called every
        `eval_every` steps and after the last.

    Raises:
      UserError: for settings, data or checkpoints that cannot be used, and if
        the loss becomes infinite or NaN.
      Interrupted: after a signal.
    """
    evaluation_command = config.evaluation_command()
    strategy = strategy or OneDevice()
    directory = make_folder(pathlib.Path(config.summary_dir) / "train")
    lock = contextlib.nullcontext()
    if strategy.is_first:
        lock = sole_trainer(directory)
    with lock, StopSignal() as stop:
        if strategy.is_first:
            remove_partial(directory)
        job = _prepare(config, strategy, directory)
        config = job.config
        with strategy.scope():
            model = job.architecture.build(config.seed)
            compile_model(model, config.max_steps)
            start, seconds = _resume(job, model)
        latest = checkpoint.checkpoint_path(directory, start)
        is_evaluated = config.eval_every and start % config.eval_every == 0
        if is_evaluated and start < config.max_steps and latest.exists():
            evaluate(latest)  # in case that the evaluation was interrupted
        callback = TrainingCallback(job, start, seconds, stop, evaluate)
        if start < config.max_steps:
            batches = job.pipeline.training_batches(
                config.batch_size, config.seed, start, config.max_steps
            )
            with job.pipeline.user_errors():
                model.fit(
                    strategy.shard(batches),
                    callbacks=[callback],
                    shuffle=False,  # the pipeline shuffles
                    verbose=0,
                )
        step = int(keras.ops.convert_to_numpy(model.optimizer.iterations))
        path = checkpoint.checkpoint_path(directory, step)
        if step < config.max_steps:
            raise Interrupted(
                f"Stopped at step {step}, saved {path}", stop.number
            )
        if step > start:
            seconds = callback.seconds()
        if strategy.is_first:
            from training import record

            # An earlier run may have been killed before it wrote the record.
            if step > start or not record.path_of(config).exists():
                rate = callback.images_per_second
                record.write(job, model, seconds, rate)
        if config.eval_every:
            evaluate(path)
    print(f"Trained to step {step}: {path}")
    if step > start:
        print(
            f"{step - start} steps in {seconds:.0f} s, "
            f"{callback.images_per_second:,.0f} images/s\n"
            f"Curves: tensorboard --logdir={shlex.quote(config.summary_dir)}\n"
            f"Evaluate by: {evaluation_command}"
        )
        if job.pipeline.spec.note is not None:
            print(job.pipeline.spec.note)


def _prepare(config, strategy, directory):
    latest = checkpoint.latest_valid(directory)
    if latest is not None:
        config = config.with_defaults_from(latest.training)
    if config.eval_every and strategy.count > 1:
        raise UserError("--eval_every is for one device")
    strategy.require_even_split(config.batch_size)
    pipeline = registry.load(
        config.dataset_name, config.split(train=True), config
    )
    if config.pad is None:  # record files know their padding
        config = dataclasses.replace(config, pad=pipeline.spec.pad)
    architecture = checkpoint.Architecture.from_config(config, pipeline.spec)
    print(
        f"Training {architecture.model} on {config.dataset_name}: "
        f"{pipeline.spec.num_images} images"
    )
    return Job(config, strategy, pipeline, architecture, directory)


def _resume(job, model):
    """Loads the newest checkpoint; returns its step and training time."""
    config, strategy = job.config, job.strategy
    latest = None
    if strategy.is_first:
        latest = checkpoint.latest_valid(job.directory, quarantine=True)
    # In a cluster only the first process knows.
    step = strategy.largest(latest.step if latest else -1)
    if step < 0:
        return _initialize(job, model), 0.0
    latest = latest or checkpoint.open_checkpoint(
        checkpoint.checkpoint_path(job.directory, step)
    )
    dataset = latest.training.get("dataset")
    if dataset not in (None, config.dataset_name):
        raise UserError(
            f"{latest.path} was trained on {dataset}, not on "
            f"{config.dataset_name}; choose another --summary_dir, and "
            "--init_checkpoint to start from its weights"
        )
    latest.check_same_data(config, job.pipeline.spec)
    if not latest.has_slots:
        raise UserError(
            f"{latest.path} has no optimizer state; choose another "
            "--summary_dir, and start from it by --init_checkpoint"
        )
    if step > config.max_steps:
        raise UserError(f"{latest.path} is beyond --max_steps")
    latest.load(model, job.architecture)
    print(f"Resuming from {latest.path}")
    _note_differences(latest, job)
    return step, latest.training.get("seconds", 0.0)


def _note_differences(latest, job):
    before = dataclasses.asdict(latest.architecture.hparams)
    now = dataclasses.asdict(job.architecture.hparams)
    if "converted_from" not in latest.training:
        before |= latest.training
        now |= job.metadata(0, before.get("seconds")).training
    ignored = {"of_files"}
    if now["schedule"] == "exponential":  # it does not depend on max_steps
        ignored.add("max_steps")
    for name, value in now.items():
        if name not in ignored and before.get(name, value) != value:
            print(f"Note: {name} was {before[name]} and is now {value}")


def _initialize(job, model):
    """Loads `init_checkpoint`, if there is one; returns the first step.

    A checkpoint without optimizer state starts at step 0, as Adam corrects its
    moments for the number of steps.
    """
    config, path = job.config, job.config.init_checkpoint
    if path is None:
        return 0
    source = checkpoint.open_checkpoint(path)
    source.check_same_data(config, job.pipeline.spec)
    source.load(model, job.architecture)
    step = source.step if source.has_slots else 0
    if config.init_weights_only:
        step = 0
        compile_model(model, config.max_steps)  # a new optimizer
    model.optimizer.iterations.assign(step)
    if step >= config.max_steps:
        raise UserError(f"{path} is at step {step}; raise --max_steps")
    print(f"Starting from {path} at step {step}")
    return step


class StopSignal:
    """Notes the first signal that ends a command; the second one raises.

    Attributes:
      number: int, the signal, or None.
    """

    def __init__(self):
        self.number = None
        self._handling = handling_signals(self._handle)

    def __enter__(self):
        self._handling.__enter__()
        return self

    def __exit__(self, *exception):
        self._handling.__exit__(*exception)

    def _handle(self, number, frame):
        if self.number is not None:
            raise Interrupted("Stopped without saving", number)
        self.number = number
